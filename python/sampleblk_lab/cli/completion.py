# SPDX-License-Identifier: MIT
"""``sampleblk-lab completion bash|zsh|fish``: what makes the shell complete the commands and their options."""

from __future__ import annotations

import argparse
from importlib import import_module

_BASH = """\
# sampleblk-lab completion bash >> ~/.local/share/bash-completion/completions/sampleblk-lab
_sampleblk_lab() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} path=${{COMP_WORDS[1]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
        case "$path" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ -n "${{COMPREPLY[0]}}" ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _sampleblk_lab sampleblk-lab
"""

_ZSH = "#compdef sampleblk-lab\nautoload -U +X bashcompinit && bashcompinit\n"


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


def _print(options: argparse.Namespace) -> int:
    known = words()
    if options.shell == "fish":
        print("complete -c sampleblk-lab -n __fish_use_subcommand -f -a '" + " ".join(known) + "'")
        for name, below in known.items():
            for word in below:
                what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                print(f"complete -c sampleblk-lab -n '__fish_seen_subcommand_from {name}' {what}")
        return 0
    cases = "\n".join(f'        {name}) words="{" ".join(below)}" ;;' for name, below in known.items())
    print((_ZSH if options.shell == "zsh" else "") + _BASH.format(commands=" ".join(known), cases=cases), end="")
    return 0
