"""How far a long piece of work has come, for the person who waits for it."""


class Steps:
    """Without a person who waits, nothing is told; a terminal overrides all three."""

    def begin(self, text: str, total: float | None = None) -> None:
        """The next thing to be done; without a total, it is not known how long it takes."""

    def advance(self, by: float = 1) -> None:
        """So much more of it is done."""

    def reach(self, value: float, total: float | None = None) -> None:
        """So much of it is done."""
