"""Options that take one value and were given several: click would use the last without a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

import click


def refuse_repeated_options(command: click.Command, context: click.Context, words: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given different ones.

    Args:
        command: the verb.
        context: its context.
        words: the command line behind the verb.

    Raises:
        click.UsageError: there is one, or the words are none that the verb understands.
    """
    _, _, order = command.make_parser(context).parse_args(list(words))
    counts = Counter(each for each in order if isinstance(each, click.Option) and not (each.multiple or each.is_flag))
    for option, count in counts.items():
        values = list(_values(option.opts, words))
        if count > 1 and (len(values) < count or len(set(values)) > 1):
            times = "twice" if count == 2 else f"{count} times"
            raise click.UsageError(f"{option.opts[0]} was given {times}: {', '.join(values)}; give it once", context)


def _values(names: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """The values of an option as they were typed: `--io NHWC`, `--io=NHWC`, `-o FILE`, `-oFILE`."""
    rest = iter(list(takewhile("--".__ne__, words)))
    for word in rest:
        long, mark, value = word.partition("=")
        if word in names:
            yield next(rest, "")
        elif mark and long in names:
            yield value
        elif word[:2] in names:
            yield word[2:]
