"""Seeds that found something, each with what it found.

A seed means a history only together with the simulation as it is. So a fault of the engine is also
kept as a claim of its own in `test_cycle.py` or `test_hostile.py`.
"""

REGRESSIONS: dict[int, str] = {
    63: "killed behind the broker's commit, younger dead letters were held as backlog",
    2457: "two new stores of one name counted alike, and took each other's tokens for proofs",
    4054: "a token that came late was mistaken for the one that was made in its place",
    71: "what arrived in a cycle that had begun before was due so much earlier",
}
