"""Does the ladder predict language? Bits a byte of the climb's models on the King James Bible.

    bible -f gen1:1-rev22:21 | cut -d' ' -f2- > kjv.txt      Debian's packages bible-kjv and bible-kjv-text
    ladder study text --budget cpu --report-seeds 1          where kjv.txt lies
    ladder table --kind language                             beside the four family scores of climb-v1

The Bible has 31,102 verses, one a line, in 4.1 MB: the King James Version of 1611. The models have the forms and sizes
of climb-v1 under the protocol text-v1. cpu is one seed at three learning rates, some four hours of a core. gpu and full
train ten times as long, and on the dictionary GCIDE, too. smoke reads a Markov chain. Models that need half a second a
step are left out: NTM and DNC.
"""

from chomsky_ladder.harness.config.corpora import CORPORA
from chomsky_ladder.harness.config.rows import ROWS, Row
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables

SUITE = "text-v1"
_FIRST: tuple[Row, ...] = (
    *(("lstm", {}), ("transformer", {}), ("mamba", {})),
    *(("xlstm", {}), ("xlstm", {"ratio": "1:0"}), ("xlstm", {"ratio": "0:1"})),
    *(("delta_net", {"eigenvalues": "signed"}), ("delta_net", {}), ("gated_delta_net", {}), ("rwkv7", {})),
    *(("retention", {}), ("gla", {}), ("rnn", {}), ("mamba2", {}), ("pd_ssm", {}), ("stack_rnn", {}), ("slice", {})),
)
_LEFT_OUT = ("ntm", "dnc")
_LAST = ("looped_transformer", "tape_rnn")  # the slowest
_OTHERS = (row for row in ROWS if row not in _FIRST and row[0] not in _LEFT_OUT)
MODELS = (*_FIRST, *sorted(_OTHERS, key=lambda row: row[0] in _LAST))


def runs(budget: Budget = "cpu") -> list[Run]:
    if budget == "smoke":
        return study_runs(budget, tasks=["text"], models=MODELS)
    corpora = CORPORA[:1] if budget == "cpu" else CORPORA
    train = {} if budget == "cpu" else {"steps": 10_000, "batch": 64}
    tasks = [("text", corpus.settings()) for corpus in corpora]
    return study_runs(budget, tasks=tasks, models=MODELS, cpu=SUITE, full=SUITE, train=train)


table = published_tables("text")
