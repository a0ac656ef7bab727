# SPDX-License-Identifier: MIT
"""``sampleblk-lab completion bash|zsh|fish``: what makes the shell complete the commands and their options.

Not shtab's (1.13): in zsh that does not complete options before positional arguments (``compare --ro``), and cannot be
sourced; argcomplete starts Python at each TAB.
"""

from __future__ import annotations

import argparse
from importlib import import_module

# Files are readline's own to complete (-o default), which knows of blanks and quotes.
_BASH = """\
# sampleblk-lab completion bash > ~/.local/share/bash-completion/completions/sampleblk-lab
_sampleblk_lab() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} path=${{COMP_WORDS[1]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
        case "$path" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _sampleblk_lab sampleblk-lab
"""

# In a file of $fpath its body is the first completion itself; sourced, it has to be made known.
_ZSH = """\
#compdef sampleblk-lab
# sampleblk-lab completion zsh > "${{fpath[1]}}/_sampleblk-lab"
_sampleblk_lab() {{
    local -a known
    if (( CURRENT == 2 )); then
        known=(
{commands}
        )
        _describe command known
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    compadd -- $known
    _files
}}
if [ "$funcstack[1]" = "_sampleblk-lab" ]; then _sampleblk_lab "$@"; else compdef _sampleblk_lab sampleblk-lab; fi
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options to the command's parser."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    parser.set_defaults(run=_print)


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Options and actions of a parser and of the actions below it."""
    found: dict[str, None] = {}
    for action in parser._actions:  # noqa: SLF001 argparse has no other way to ask
        found.update(dict.fromkeys(option for option in action.option_strings if option.startswith("--")))
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, below in action.choices.items():
                found[name] = None
                found.update(dict.fromkeys(_words(below)))
    return list(found)


def words() -> dict[str, list[str]]:
    """Each command with what may follow it."""
    from sampleblk_lab.cli.main import COMMANDS

    found = {}
    for name, (module, _) in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        module_name, _, function = module.partition(":")
        getattr(import_module(f"sampleblk_lab.cli.{module_name}"), function or "configure")(parser)
        found[name] = _words(parser)
    return found


def _quoted(text: str) -> str:
    """For all three shells, also in fish, where a backslash before a quote is one."""
    return "'" + text.replace("'", "\u2019") + "'"


def _bash(known: dict[str, list[str]], helps: dict[str, str]) -> str:
    del helps  # bash has no place for them
    cases = "\n".join(f'        {name}) words="{" ".join(below)}" ;;' for name, below in known.items())
    return _BASH.format(commands=" ".join(known), cases=cases)


def _zsh(known: dict[str, list[str]], helps: dict[str, str]) -> str:
    commands = "\n".join(f"            {_quoted(f'{name}:{helps[name]}')}" for name in known)
    cases = "\n".join(f"        {name}) known=({' '.join(below)}) ;;" for name, below in known.items())
    return _ZSH.format(commands=commands, cases=cases)


def _fish(known: dict[str, list[str]], helps: dict[str, str]) -> str:
    lines = ["# sampleblk-lab completion fish > ~/.config/fish/completions/sampleblk-lab.fish"]
    lines += [
        f"complete -c sampleblk-lab -n __fish_use_subcommand -f -a {name} -d {_quoted(helps[name])}" for name in known
    ]
    for name, below in known.items():
        for word in below:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c sampleblk-lab -n '__fish_seen_subcommand_from {name}' {what}")
    return "\n".join(lines) + "\n"


def _print(options: argparse.Namespace) -> int:
    from sampleblk_lab.cli.main import COMMANDS

    known = words()
    helps = {name: said for name, (_, said) in COMMANDS.items()}
    text = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](known, helps)
    print(text, end="")
    return 0
