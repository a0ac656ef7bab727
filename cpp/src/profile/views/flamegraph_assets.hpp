// SPDX-License-Identifier: MIT
// The style and the script of a flame graph. Frames are nested <svg> elements with widths in percent, so text is cut at
// a frame's edge and the whole fits any screen without a line of script; the script adds zoom, search and keys. What is
// not shown yet (a notebook's frame further down) has no width: it keeps its labels until it has one.
#pragma once

#include <string_view>

namespace sampleblk::profile {

inline constexpr std::string_view kFlameStyle = R"css(
.sblk-flame{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;color-scheme:light dark;
--bg:#fff;--fg:#1c1c1c;--dim:#5b5b5b;--k:#f5a15a;--m:#6cc7a1;--u:#f2d16b;--x:#c9c9c9;--n:#b9b4e8;--hit:#e667d8;
--up:#e5484d;--down:#4a82e0;--same:#d5d5d5}
@media(prefers-color-scheme:dark){.sblk-flame{--bg:#15171c;--fg:#f0f0f0;--dim:#a9adb5;--k:#a85a1c;--m:#1f7a55;
--u:#86690f;--x:#565a61;--n:#57529a;--hit:#b02aa2;--up:#b3262c;--down:#2458b0;--same:#44484f}}
.sblk-flame text{fill:var(--fg);pointer-events:none}
.sblk-flame .bg{fill:var(--bg)}.sblk-flame .h{font-size:16px;font-weight:600}.sblk-flame .d{fill:var(--dim)}
.sblk-flame .b{pointer-events:all;cursor:pointer;text-decoration:underline}
.sblk-flame .f{cursor:pointer;outline:none}.sblk-flame .f>rect{stroke:var(--bg);stroke-width:.6}
.sblk-flame .k>rect{fill:var(--k)}.sblk-flame .m>rect{fill:var(--m)}.sblk-flame .u>rect{fill:var(--u)}
.sblk-flame .i>rect{fill:var(--u);stroke-dasharray:4 2}.sblk-flame .x>rect{fill:var(--x)}.sblk-flame .n>rect{fill:var(--n)}
.sblk-flame .up>rect{fill:var(--up)}.sblk-flame .down>rect{fill:var(--down)}.sblk-flame .same>rect{fill:var(--same)}
.sblk-flame .s1>rect{fill-opacity:.93}.sblk-flame .s2>rect{fill-opacity:.86}.sblk-flame .s3>rect{fill-opacity:.79}
.sblk-flame .o1>rect{fill-opacity:.25}.sblk-flame .o2>rect{fill-opacity:.45}.sblk-flame .o3>rect{fill-opacity:.7}
.sblk-flame .f:hover>rect,.sblk-flame .f:focus>rect{stroke:var(--fg);stroke-width:1.6}
.sblk-flame .hit>rect{fill:var(--hit);fill-opacity:1}.sblk-flame .above>rect{fill-opacity:.35}
.sblk-flame input{box-sizing:border-box;width:100%;height:22px;font:inherit;color:var(--fg);background:var(--bg);
border:1px solid var(--dim);border-radius:3px}
@media print{.sblk-flame .tools{display:none}}
)css";

inline constexpr std::string_view kFlameScript = R"js(
(function(){"use strict";
var root=document.currentScript.parentNode,NS="http://www.w3.org/2000/svg",H="http://www.w3.org/1999/xhtml";
var box=root.querySelector(".frames"),details=root.querySelector(".details"),numbers=root.querySelector(".numbers"),matched=root.querySelector(".matched");
var inverted=root.hasAttribute("data-inverted"),rows=[],frames=[];
Array.prototype.forEach.call(box.children,function(e){
var y=+e.getAttribute("y"),t=e.querySelector("title").textContent,depth=+e.getAttribute("data-d");
var f={e:e,x:parseFloat(e.getAttribute("x")),w:parseFloat(e.getAttribute("width")),y:y,d:depth,t:t,
name:t.split("\n")[0],children:[],parent:depth?rows[depth-1]:null,hidden:false};
f.bx=f.x;f.bw=f.w;rows[depth]=f;if(f.parent){f.parent.children.push(f);}frames.push(f);e.sblk=f;});
var current=frames[0],zoomed=frames[0],pattern=null;
function label(f){var whole=root.getBoundingClientRect().width,text=f.e.querySelector("text");
if(!whole){return;}
var room=Math.floor((f.w/100*whole-6)/7.25);
if(room<3){if(text){text.textContent="";}return;}
if(!text){text=document.createElementNS(NS,"text");text.setAttribute("x","3");text.setAttribute("y","12");
f.e.appendChild(text);}
text.textContent=f.name.length>room?f.name.slice(0,room-1)+"\u2026":f.name;}
function say(f){details.textContent=f.name;numbers.textContent=f.t.split("\n").slice(1).join("  \u00b7  ");}
function within(f,a){for(;f;f=f.parent){if(f===a){return true;}}return false;}
function zoom(to){zoomed=to;
frames.forEach(function(f){var over=f!==to&&within(to,f),show=over||within(f,to);f.hidden=!show;
f.e.style.display=show?"":"none";f.e.classList.toggle("above",over);
if(!show){return;}
if(over){f.x=0;f.w=100;}else{f.x=(f.bx-to.bx)/to.bw*100;f.w=f.bw/to.bw*100;}
f.e.setAttribute("x",f.x+"%");f.e.setAttribute("width",f.w+"%");label(f);});
reset.style.display=to===frames[0]?"none":"";root.setAttribute("data-zoomed",to.name);say(to);}
function focus(f){if(!f||f.hidden){return;}current.e.removeAttribute("tabindex");current=f;
f.e.setAttribute("tabindex","0");f.e.focus();say(f);}
function search(text){pattern=null;if(text){try{pattern=new RegExp(text,"i");}catch(_){pattern=new RegExp(
text.replace(/[.*+?^${}()|[\]\\]/g,"\\$&"),"i");}}
var sum=0,count=0;
frames.forEach(function(f){f.hit=!!pattern&&f.d>0&&pattern.test(f.name);f.e.classList.toggle("hit",f.hit);
f.under=!!f.parent&&(f.parent.hit||f.parent.under);if(f.hit){count++;if(!f.under){sum+=f.bw;}}});
matched.textContent=pattern?count+" matched, "+sum.toFixed(2)+"%":"";
root.setAttribute("data-matched",pattern?sum.toFixed(4):"");}
function next(step){var hits=frames.filter(function(f){return f.hit&&!f.hidden;});if(!hits.length){return;}
focus(hits[(hits.indexOf(current)+step+hits.length)%hits.length]);}
var tools=root.querySelector(".tools");
var reset=document.createElementNS(NS,"text");reset.setAttribute("class","b reset");reset.setAttribute("x","8");
reset.setAttribute("y","62");reset.textContent="Reset zoom";reset.style.display="none";tools.appendChild(reset);
reset.addEventListener("click",function(){zoom(frames[0]);});
var hole=document.createElementNS(NS,"foreignObject");hole.setAttribute("x","84");hole.setAttribute("y","46");
hole.setAttribute("width","150");hole.setAttribute("height","24");var input=document.createElementNS(H,"input");
input.setAttribute("type","search");input.setAttribute("placeholder","Search ( / )");
input.setAttribute("aria-label","Search functions by regular expression");
input.addEventListener("input",function(){search(input.value);});
input.addEventListener("keydown",function(e){e.stopPropagation();
if(e.key==="Escape"){input.value="";search("");current.e.focus();}if(e.key==="Enter"){next(1);}});
hole.appendChild(input);tools.appendChild(hole);
box.addEventListener("click",function(e){var t=e.target.closest(".f");if(t){focus(t.sblk);zoom(t.sblk);}});
box.addEventListener("mouseover",function(e){var t=e.target.closest(".f");if(t){say(t.sblk);}});
box.addEventListener("mouseleave",function(){say(zoomed);});
root.addEventListener("keydown",function(e){if(e.ctrlKey||e.altKey||e.metaKey){return;}
var up=inverted?"ArrowDown":"ArrowUp",down=inverted?"ArrowUp":"ArrowDown",done=true,s,i;
if(e.key===up){focus(current.children.reduce(function(a,b){return!a||b.bw>a.bw?b:a;},null));}
else if(e.key===down){focus(current.parent);}
else if(e.key==="ArrowLeft"||e.key==="ArrowRight"){s=current.parent?current.parent.children:[current];
i=s.indexOf(current)+(e.key==="ArrowLeft"?-1:1);focus(s[i]);}
else if(e.key==="Enter"||e.key===" "){zoom(current);}
else if(e.key==="Escape"||e.key==="Home"){zoom(frames[0]);focus(frames[0]);}
else if(e.key==="/"){input.focus();}
else if(e.key==="n"){next(1);}else if(e.key==="p"){next(-1);}else{done=false;}
if(done){e.preventDefault();}});
if(frames[0]){frames[0].e.setAttribute("tabindex","0");}
var timer;function relabel(){clearTimeout(timer);timer=setTimeout(function(){
frames.forEach(function(f){if(!f.hidden){label(f);}});},100);}
if(window.ResizeObserver){new ResizeObserver(relabel).observe(root);}else{window.addEventListener("resize",relabel);}
frames.forEach(label);root.setAttribute("data-ready","");
}());
)js";

}  // namespace sampleblk::profile
