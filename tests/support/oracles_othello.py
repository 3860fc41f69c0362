"""Othello once more in plain Python: one list of signs with a rim around the board, one square looked at at a time.

>>> game = Game(8)
>>> game.moves
['d3', 'c4', 'f5', 'e6']
>>> game.play("d3")
>>> game.player, game.moves
('W', ['c3', 'e3', 'c5'])
"""

OTHER = {"B": "W", "W": "B"}


class Game:
    """A game under way: `player` is "" and `moves` are none when nobody can move any more."""

    def __init__(self, size: int) -> None:
        wide, middle = size + 2, size // 2
        self.places = {f"{'abcdefgh'[x]}{y + 1}": (y + 1) * wide + x + 1 for y in range(size) for x in range(size)}
        self.directions = (1, -1, wide, -wide, wide + 1, -wide - 1, wide - 1, 1 - wide)
        self.board = ["#"] * wide**2
        west, east = "abcdefgh"[middle - 1 : middle + 1]
        corners = {
            f"{west}{middle}": "W",
            f"{east}{middle}": "B",
            f"{west}{middle + 1}": "B",
            f"{east}{middle + 1}": "W",
        }
        for name in self.places:
            self.board[self.places[name]] = corners.get(name, ".")
        self.passes, self.last, self.player = 0, "W", "B"
        self.moves = self.moves_of("B")

    def turned(self, name: str, player: str) -> list[int]:
        """The places of the stones that turn if `player` plays there; none where that is not allowed."""
        board, start, other, found = self.board, self.places[name], OTHER[player], []
        if board[start] == ".":
            for step in self.directions:
                place = start + step
                while board[place] == other:
                    place += step
                if board[place] == player:
                    found.extend(range(start + step, place, step))
        return found

    def moves_of(self, player: str) -> list[str]:
        """Row by row from a1."""
        return [name for name in self.places if self.turned(name, player)]

    def play(self, name: str) -> None:
        turned = self.turned(name, self.player)
        assert turned, f"{name} is not allowed"
        for place in (self.places[name], *turned):
            self.board[place] = self.player
        self.last = self.player
        self.player = OTHER[self.last]
        self.moves = self.moves_of(self.player)
        if not self.moves:
            self.moves = self.moves_of(self.last)
            self.player = self.last if self.moves else ""
            self.passes += bool(self.moves)

    @property
    def viewer(self) -> str:
        """The player to move; when the game is over the one who did not move last."""
        return self.player or OTHER[self.last]

    def stones(self, player: str) -> set[str]:
        return {name for name, place in self.places.items() if self.board[place] == player}

    def labels(self, viewer: str) -> list[int]:
        """Row by row: 0 for an empty square, 1 for a stone of the viewer's, 2 for one of the other's."""
        signs = [".", viewer, OTHER[viewer]]
        return [signs.index(self.board[place]) for place in self.places.values()]
