"""`mpijoin completion`: a shell function that completes commands, options and their values, made from the parser
itself."""

from __future__ import annotations

import argparse
from typing import Iterator

SCRIPT = """\
_mpijoin() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" command="" one words=""
    for one in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $one" in
            {steps}) command="${{command:+$command }}$one" ;;
        esac
    done
    case "$command $before" in
{values}
        *) case "$command" in
{words}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
# Where nothing of this fits, names of files are completed.
complete -o default -F _mpijoin mpijoin"""


def completion(parser: argparse.ArgumentParser) -> str:
    """The function for bash, and for zsh after its bashcompinit."""
    commands = dict(_commands("", parser))
    steps = " | ".join(f'"{path.rpartition(" ")[0]} {path.rpartition(" ")[2]}"' for path in commands if path)
    values, words = [], []
    for path, one in commands.items():
        words.append(f'            "{path}") words="{" ".join(_words(one))}" ;;')
        for action in one._actions:
            if action.choices and action.option_strings:
                names = " | ".join(f'"{path} {name}"' for name in action.option_strings)
                values.append(f'        {names}) words="{" ".join(map(str, action.choices))}" ;;')
    return SCRIPT.format(steps=steps, values="\n".join(values), words="\n".join(words))


def _commands(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser below this one by the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _commands(f"{path} {name}".strip(), below)


def _words(parser: argparse.ArgumentParser) -> list[str]:
    found: list[str] = []
    for action in parser._actions:
        found += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            found += action.choices
    return found
