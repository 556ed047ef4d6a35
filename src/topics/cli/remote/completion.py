"""`topics completion`: lets a shell complete verbs, flags, and the names of topics, which the server knows.

source <(topics completion bash)        in ~/.bashrc
source <(topics completion zsh)         in ~/.zshrc, behind compinit
topics completion fish | source         in ~/.config/fish/config.fish
"""

import argparse
import re
from collections.abc import Iterable
from typing import Any

from topics.cli.parser import add_verb
from topics.cli.remote.client import topic_names
from topics.cli.remote.options import add_flags, client_for, profile_names
from topics.client import TopicsError
from topics.core import Explained

# bash breaks words at these, and replaces only the text after them.
_BREAKS = re.compile(r".*[:@=]")
_SCRIPTS = {
    "bash": r"""_topics() {
    local IFS=$'\n'
    COMPREPLY=($(topics __complete --bash "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null))
}
complete -o default -F _topics topics""",
    "zsh": r"""#compdef topics
_topics() {
    local -a found
    found=("${(@f)$(topics __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -a found
}
compdef _topics topics""",
    "fish": r"""function __topics
    topics __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c topics -f -a '(__topics)'""",
}


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "completion", run, __doc__, keeps_lines=True)
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="bash|zsh|fish")


def run(arguments: argparse.Namespace) -> int:
    print(_SCRIPTS[arguments.shell])
    return 0


def words_of(arguments: list[str]) -> list[str]:
    """The words after `topics`; the last one is to be completed."""
    if arguments[:1] == ["--bash"]:
        typed = "".join(arguments[1:])
        return [*typed.split(), ""][1:] if typed.endswith(" ") or not typed else typed.split()[1:]
    return arguments


def candidates(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """The candidates for the last of `words`, which begin with a verb."""
    current = words[-1]
    inner = _innermost(parser, words[:-1])
    actions = [action for action in inner._actions if isinstance(action, argparse._SubParsersAction)]
    flag = inner._option_string_actions.get(words[-2]) if len(words) > 1 else None
    if flag is not None and flag.nargs is None:
        found: Iterable[str] = profile_names() if flag.dest == "profile" else flag.choices or ()
    elif current.startswith("-"):
        found = [flag for flag in inner._option_string_actions if flag.startswith("--")]
    elif actions:
        found = actions[0].choices
    else:
        positional = [action for action in inner._actions if not action.option_strings]
        chosen = [name for action in positional for name in action.choices or ()]
        found = chosen or _topics(current, positional, words)
    return sorted(each for each in found if each.startswith(current))


def after_break(candidate: str, current: str) -> str:
    broken = _BREAKS.match(current)
    return candidate if broken is None else candidate[broken.end() :]


def _innermost(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    for word in words:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                break
    return parser


def _topics(prefix: str, positional: list[argparse.Action], words: list[str]) -> list[str]:
    """The topics of the server that the words name; none if it does not answer."""
    if not any(action.metavar in ("TOPIC", "PREFIX", "SOURCE", "DEST") for action in positional):
        return []
    flags = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_flags(flags)
    try:
        given, _ = flags.parse_known_args(words[:-1])
        with client_for(given) as client:
            return topic_names(client, prefix)
    except (TopicsError, Explained, OSError, UnicodeError, argparse.ArgumentError, SystemExit):
        return []
