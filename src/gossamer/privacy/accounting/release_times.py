"""Number of examples that a release's deadline provides for, and the cost of samples that have more.

What takes a node time is public but for one thing: how many examples were sampled. So it hands its answers over at
multiples of a deadline, by which a sample of any usual size has long been computed (`deployment.party.pacing`), and
computes on examples that nobody has until there are as many as that (`sides.filled`). The usual size is K,
`provided_for`: a sample is larger with a probability of at most `LATE`. Then the answer may go a deadline later, and
its time tells.

**What that costs.** n slots are public, and who is in a sample depends on coins alone, whatever is in the slots. Take
the same coins for two neighbours, which differ in one slot, and let A be the event that no sample of the run exceeds
its K. Given A, the samples of the other n - 1 slots follow one law, and given these the slot itself is in with
probability q, or with a smaller one where the sample would then exceed K. Such a release is a mixture, with weights
common to both, of what a release at rate q does and of what does not depend on the slot, so whatever pair dominates the
former dominates it, and all releases together are (epsilon, delta)-private as planned. Times are constant given A,
whether or not a slot that is blank would be computed on. So

    P(S) <= P(A) (exp(epsilon) P'(S | A) + delta) + P(not A) <= exp(epsilon) P'(S) + delta + T LATE

for T releases on Poisson samples: `LATE` is added to delta for each, with no factor. How many steps of a round are
taken may depend on earlier answers, but is fixed before coins are tossed: given these answers, so is the probability p
of A for one release, common to both data sets, and p P and p P' are no further apart than P and P'.

**A person with several rows** differs in as many slots. Given A and the other slots, the number of these in a sample is
a binomial number given that it is at most what is left of K. That is at most a binomial one in distribution, also given
that both are at least 1, and what dominates grows with the number (`group_pairs`: monotone in the rate; for `Coins`, as
the g_k do, and as divergences do in the weight of what is not common). Where epsilon is m times that of a row, rows
change one by one. Again a release is dominated as planned, and P(A) is common to both.

Samples of a fixed size cost nothing. An owner's budget sets `SET_ASIDE` of its delta aside for all releases ever
(`without_late`).
"""

from __future__ import annotations

from scipy.special import betainc

from gossamer.privacy.sampling import Sampling

LATE = 2.0**-80
"""Most probability of a sample that is larger than its deadline provides for."""
SET_ASIDE = 2.0**-40
"""Of an owner's delta, for answers that are late: enough for 2^40 releases."""
LEAST = 2.0**-50
"""Of an owner's delta that is taken: half of a smaller one is not enough for 2^29 releases."""

PUBLIC_TIMES = (
    "how many examples were sampled does not show in when messages are sent: every answer is computed on as many as "
    "all but unlikely samples have, which delta counts, and goes at a multiple of a public deadline; none is taken to "
    "miss it because of what is in the examples, and crashes are not covered"
)
OPEN_TIMES = (
    "the timing of messages is not covered: an answer goes as soon as it is computed, and may tell how many examples "
    "were sampled; neither are crashes"
)


def provided_for(sampling: Sampling, count: int, until: int = 1, steps: int = 1) -> int:
    """The most examples whose turn comes in a release, but for a probability of `LATE`: a public number.

    Parameters
    ----------
    sampling : Sampling
        How a batch is drawn.
    count : int
        Examples of the shard.
    until, steps : int
        Of a round: how many of its steps are taken. Each example's turn comes at one of them.
    """
    if (size := getattr(sampling, "batch_size", None)) is not None:
        return -(-int(size) * until // steps)
    rate, low, high = sampling.rate * (until / steps), 0, count
    while low < high:
        middle = (low + high) // 2
        # The probability that a binomial number is larger; half of what is allowed, so that rounding cannot matter.
        if rate == 0 or betainc(middle + 1, count - middle, rate) <= LATE / 2:
            high = middle
        else:
            low = middle + 1
    return low


def without_late(delta: float) -> float:
    """Return the part of an owner's ``delta`` that is left for what is released; of a tiny one it is half."""
    return delta - min(SET_ASIDE, delta / 2)
