"""Check a guarantee of differential privacy from receipts: python gossamer_verify.py RESULTS|RECEIPTS [GUARANTEE] [--json]

This file shares no code with the library that wrote the receipts. It needs Python 3.11, numpy, scipy and, for signatures,
cryptography; it reads `receipts.jsonl` and `guarantee.json`, and no data. It ends with 0 if all that is promised follows,
with 1 if something does not, with 2 if a file cannot be read.

1. Are the receipts whole? s_0 is 32 zero bytes, s_(i+1) the SHA-256 of s_i and line i. Each line begins with 16 digits of
   s_i, the last one has all of it, and is signed where the first one names a key.
2. Did each party keep to its plan, which says how many releases of each law there may be? All of it is what counts.
3. What follows from the plans? One release is dominated by a pair (P, Q) of laws on the line, and pairs compose (Zhu, Dong,
   Wang, AISTATS 2022, theorem 10). N(m) is normal, of mean m and variance 1; C/sd is 1 over the noise multiplier.

   one    Poisson sample of rate q; an example comes or goes, m = C/sd   (1-q) N(0) + q N(m) and N(0); turned, too
   both   Poisson sample of rate q; one is replaced, m = C/sd            the same and (1-q) N(0) + q N(-m)
   fixed  so many of all, the share q; one is replaced, m = 2 C/sd       losses > 0 as of `one`, losses < 0 its mirror
          (Balle, Barthe, Gaboardi, NeurIPS 2018, theorem 9: H(e) = q H_N(log(1 + (exp(e)-1)/q)), and its derivative);
          of sums clipped as a whole, any two at most C apart (BallGaussian), m = C/sd, on Poisson samples, too
   full   all examples, q = 1: N(m) and N(0), of several with the sum of their m^2; and a stream of normal noise B z with
          B K the matrix of ones, updates moved by D at most: m = D |K 1|/sd (Denisov et al., NeurIPS 2022)

   Losses log(P/Q) are put on a lattice of step h: P's mass between a and a + h goes to both, in such parts that P's and Q's
   masses stay, which only raises H ("connect the dots", Doroshenko et al., PoPETs 2022); what is above the last point counts
   as infinite, what is below the first one as that. Let L be the sum of all losses and M(z) = E exp(z L). For t > 0 the
   sequence exp(t e) delta(e), e = j h, has the transform M(z) K(z), z = t - i s, K = x (1-y)/((1-x)(1-x y)), x = exp(-z h),
   y = exp(-h). From N frequencies comes the sequence summed over all j that agree modulo N. No term is negative: whatever
   t, h and N are, it is an upper bound of the one looked for. They make it tight; rounding of the sums is added.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

FORMAT, SLACK, LEAST = 1, 1e-3, 1e-10  # of receipts; between two computations; errors of tests that mu is about
DELTAS = (0.3, 0.1, *10.0 ** -np.arange(2, 15))  # that the profile is tight around
SIGNED = bytes.fromhex("74030000007308000000676f7373616d657273080000007265636569707473622000" + "0000")
        root = np.cumprod(np.where(j > 0, (2 * j - 1) / np.maximum(2 * j, 1), 1.0))  # coefficients of (1 - x)^(-1/2)
        kernel = root[: bands.get(law["temporal"])] if law["temporal"] != "independent" else np.ones(j.size)
        moved = np.cumsum(np.pad(kernel, (0, j.size - kernel.size)))
        return "one", 1.0, law["moved"] * float(np.linalg.norm(moved)) / law["standard_deviation"]
    kind, sampling = law["mechanism"], law.get("sampling")
    if kind not in ("Gaussian", "BallGaussian") or not (sampling == "Poisson" or (sampling == "FixedSize" and replaced)):
        raise NotVerified(f"nothing is proved here of {kind} and {sampling or law.get('law')} under this relation")
    q = law["probability"] if sampling == "Poisson" else law["batch_size"] / law["dataset_size"]
    m = (2 if replaced and kind == "Gaussian" and (q == 1 or sampling == "FixedSize") else 1) / law["noise_multiplier"]
    if not (0 < q <= 1 and 0 < m < math.inf):
        raise Unreadable(f"a law has a rate in (0, 1] and noise, found {law}")
    fixed = sampling == "FixedSize" or kind == "BallGaussian"
    return "one" if q == 1 or not replaced else "fixed" if fixed else "both", q, m


def read(path):
    """The chain in a file: its laws, its parties, its head, whether it is signed, and where a plan was not kept to."""
    state, time, counts, found = bytes(32), -math.inf, Counter(), {"parties": {}, "broken": [], "head": None}
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            one = json.loads(line)
            if number == 1 and int(one["receipts"]) > FORMAT:
                raise Unreadable(f"receipts of format {one['receipts']}, newer than {FORMAT}; get a newer verifier")
            if one["chain"] != state.hex()[:16] or found["head"]:
                raise Unreadable(f"the chain is broken at line {number}, which does not follow the line before")
            if number == 1:
                found |= {"laws": list(one["laws"]), "key": one["key"]}
                for unknown in {law["mechanism"] for law in one["laws"]} - KNOWN:
                    raise Unreadable(f"unknown mechanism {unknown!r}")
            elif "party" in one:
                found["parties"][one["party"]] = one
            elif "head" in one:
                if (one["head"], one["releases"]) != (state.hex(), sum(counts[name] for name in found["parties"])):
                    raise Unreadable("the head is not that of the lines before it")
                found |= {"head": state.hex(), "releases": one["releases"], "signed": found["key"] is not None}
                if found["signed"]:
                    check_signature(found["key"], one["signature"], state)
            else:
                of, law, now = one["of"], str(int(one["law"])), time if one["time"] is None else float(one["time"])
                counts[of] += 1
                if one["number"] != counts[of] or now < time:
                    raise Unreadable(f"the release of {of} at line {number} is out of order")
                time, most = now, found["parties"][of]["most"]
                for owner in one.get("owners", found["parties"][of].get("owners", [""])):
                    counts[of, owner, law] += 1
                    if most is not None and counts[of, owner, law] > most.get(law, 0):
                        found["broken"].append(f"{of} releases more than it planned, at line {number}")
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise Unreadable(f"no chain of receipts: line {number}, {type(error).__name__} {str(error)[:60]}") from None
        state = hashlib.sha256(state + line).digest()
    if not found["head"]:
        raise Unreadable("the chain has no end: its last lines are missing, or the run was killed")
    return found


def check_signature(key, signature, head):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), SIGNED + head)
    except InvalidSignature:
        raise Unreadable("the signature of the head, the last line, is broken") from None


def plans(receipts, entry):
    """Parties by all that they may release to an observer, as counts of pairs."""
    found, inside = {}, "own server" if entry["observer"].startswith("own server") else ""
    for name, party in receipts["parties"].items():
        if party.get("to", "") != inside:
            continue
        if party["most"] is None or not entry["unit"].startswith(tuple(party["protects"])):
            raise NotVerified(f"{name} has no plan, or protects another unit")
        laws = Counter()
        for law, most in party["most"].items():
            law = receipts["laws"][int(law)]
            if most:
                laws[pair_of(law, entry["neighboring_relation"] == "replace_one")] += most if "sampling" in law else 1
        found.setdefault(frozenset(laws.items()), []).append(name)
    if not found:
        raise NotVerified("no receipts tell of what this observer sees")
    return found


def judge(entry, receipts):
    """What follows for one entry of a guarantee."""
    said = {name: entry[name] for name in ("unit", "observer", "delta")} | {"verdict": "promises nothing", "plans": []}
    if entry.get("privacy") == "none":
        return said
    try:
        if entry["rows_per_person"] not in (None, 1):
            raise NotVerified("nothing is proved here of persons with several examples")
        for laws, names in plans(receipts, entry).items():
            own = epsilon(dict(laws), entry["delta"]), *figures(dict(laws))
            said["plans"].append({"parties": names, **dict(zip(("epsilon", "mu", "best_guess"), own))})
    except NotVerified as why:
        return said | {"verdict": f"not verified: {why}"}
    for name, slack in (("epsilon", SLACK), ("mu", 10 * SLACK), ("best_guess", 10 * SLACK)):
        said[name] = max(one[name] for one in said["plans"])
        if entry[name] is not None and said[name] > entry[name] * (1 + slack):
            return said | {"verdict": f"does not follow: {name} is {said[name]:.6g}, promised {entry[name]:.6g}"}
    return said | {"verdict": "follows"}


def verify(place, card=None):
    """What follows of a guarantee from receipts, and what does not."""
    place = Path(place)
    path, card = (place / "receipts.jsonl", place / "guarantee.json") if place.is_dir() else (place, card)
    try:
        receipts, entries, head = read(path), [], None
        if card is not None:
            said = json.loads(Path(card).read_bytes())
            entries, head = said["guarantees"], (said.get("receipts") or {}).get("head")
        said = [judge(entry, receipts) for entry in entries]
    except OSError as error:
        raise Unreadable(f"{error.filename}: {error.strerror}") from None
    ...
