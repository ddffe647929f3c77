"""Check a privacy guarantee from receipts: python gossamer_verify.py RESULTS|RECEIPTS [GUARANTEE] [--json]

It needs Python 3.11, numpy, scipy and, for signatures, cryptography, and shares no code with the library that wrote the
receipts. It ends with 0 if all that is promised follows, 1 if something does not, 2 if a file cannot be read.
1. Are the receipts whole? s_0 is 32 zero bytes, s_(i+1) the SHA-256 of s_i and line i's SHA-256. Each line has 16
   digits of s_i, the last all, signed if the first names a key. 2. Did each party keep to its plan? All of it counts.
3. What follows from the plans? One release is dominated by a pair (P, Q) of laws on the line, and pairs compose (Zhu,
   Dong, Wang, AISTATS 2022, theorem 10). N(m) is normal with variance 1; C/sd is 1 over the noise multiplier.
   one    Poisson sample of rate q; an example comes or goes, m = C/sd   (1-q) N(0) + q N(m) and N(0); turned, too
   both   Poisson sample of rate q; one is replaced, m = C/sd            the same and (1-q) N(0) + q N(-m)
   fixed  so many of all, the share q; one is replaced, m = 2 C/sd       losses > 0 as of `one`, losses < 0 its mirror
          (Balle, Barthe, Gaboardi, NeurIPS 2018, theorem 9: H(e) = q H_N(log(1 + (exp(e)-1)/q)), and its derivative);
          of sums clipped as a whole, any two at most C apart (BallGaussian), m = C/sd, on Poisson samples, too
   q = 1  all examples, m = C/sd or 2 C/sd: N(m) and N(0); and a whole stream of normal noise B z, B K the matrix of
          ones, each update moved by D at most: m = D |K 1|/sd (Denisov et al., NeurIPS 2022)
   Losses log(P/Q) are put on a lattice of step h. P's mass between a and a + h goes to both, so that P's and Q's
   masses stay, which only raises H ("connect the dots", Doroshenko et al., PoPETs 2022); what is above the last point
   counts as infinite, what is below the first one as that. With L the sum of all losses, M(z) = E exp(z L), t > 0:
   the sequence exp(t e) delta(e), e = j h, has the transform M(z) K(z), z = t - i s, K = x (1-y)/((1-x)(1-x y)),
   x = exp(-z h), y = exp(-h). From N frequencies comes the sequence summed over all j that agree modulo N. No term is
   negative: it is an upper bound whatever t, h and N are. They make it tight; rounding of the sums is added.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

FORMAT, SLACK, ROUNDING = 1, 1e-3, 1e-6  # of both files; relative: between two computations, on delta by rounding
TAIL, LEAST = 1e-30, 1e-10  # what counts as infinite losses; errors of the tests that mu is about
DELTAS = (0.3, 0.1, *10.0 ** -np.arange(2, 15))  # where mu's bounds are tight
SIGNED = b"t\x03\0\0\0s\x08\0\0\0gossamers\x08\0\0\0receiptsb \0\0\0"  # before the head that a party's key signs
KNOWN = "Gaussian BallGaussian stream L2Laplace Laplace PaperNoise NoNoise none discrete_gaussian"
Pair = tuple[str, float, float]
Found = dict[str, Any]


class Unreadable(Exception):
    """No chain of receipts, or no guarantee."""


def tails(pair: Pair, back: bool, x: Any) -> tuple[Any, Any]:
    """P(loss > x) and Q(loss > x) for the loss log(P/Q), x >= 0; of log(Q/P), and Q first, if ``back``."""
    shape, q, m = pair
    with np.errstate(divide="ignore"):
        if shape == "both":  # the loss is x at the output log(u)/m, u = exp(x/2) exp(asinh(k sinh(x/2)))
            a = m * m / 2 + np.log1p(-q) - math.log(q) + x / 2 + np.log(-np.expm1(-x) / 2)
            o = (x / 2 + np.logaddexp(a, np.logaddexp(2 * a, 0) / 2)) / m
            return (1 - q) * ndtr(-o) + q * ndtr(m - o), (1 - q) * ndtr(-o) + q * ndtr(-m - o)
        if shape == "one" and back:
            o = np.log(np.maximum(1 + np.expm1(-x) / q, 0)) / m + m / 2
            return ndtr(o), (1 - q) * ndtr(o) + q * ndtr(o - m)
    o = np.log1p(np.expm1(x) / q) / m + m / 2
    return (1 - q) * ndtr(-o) + q * ndtr(m - o), ndtr(-o)


def highest(pair: Pair, back: bool) -> float:
    """A loss that is exceeded with probability `TAIL` at most."""
    shape, q, m = pair
    mo = m * (ndtri(TAIL) if shape == "one" and back else m - ndtri(TAIL))
    up, down = (v if q == 1 else math.log1p(q * math.expm1(min(v, 700))) for v in (mo - m * m / 2, -mo - m * m / 2))
    found = up - down if shape == "both" else abs(up)
    if not 0 < found < 600:
        raise ArithmeticError("there is next to no noise")
    return found


def tilt(pair: Pair, back: bool, h: float, t: float) -> tuple[float, Any, int, float]:
    """Log of M(t) of one release; its probabilities tilted by exp(t loss), the first loss's step, the variance."""
    n, top = (max(1, math.ceil(highest(pair, way) / h)) for way in (not back, back))
    mass, x = np.zeros(n + 1 + top), h * np.arange(top + 1)
    p, q = tails(pair, back, x)
    inside = p[:-1] - p[1:]
    upper = np.clip((inside - (q[:-1] - q[1:]) * np.exp(x[:-1])) / -math.expm1(-h), 0, inside)
    mass[n + 1 :] += upper
    mass[n:-1] += inside - upper
    q, below = tails(pair, not back, x := h * np.arange(n + 1))  # of the loss turned round
    inside = below[:-1] - below[1:]
    lower = np.clip(((q[:-1] - q[1:]) * np.exp(-x[:-1]) - inside) / math.expm1(h), 0, inside)
    mass[n:0:-1] += inside - lower
    mass[n - 1 :: -1] += lower
    mass[0] += below[-1]
    mass[n] = max(mass[n] + 1 - mass.sum() - p[-1], 0)
    x = h * np.arange(-n, top + 1)
    total = mass @ np.exp(t * x)
    weight = mass * np.exp(t * x) / total
    return math.log(total), weight, -n, weight @ (x - weight @ x) ** 2


def bounds(laws: dict[Pair, int], back: bool, h: float, size: int, t: float, steps: Any) -> Any:
    """Upper bounds of delta at the losses h ``steps``, tight near the one that ``t`` belongs to."""
    log, releases, spectrum = 0.0, sum(laws.values()), np.zeros(size // 2 + 1, complex)
    for pair, count in laws.items():
        logs, weight, first, _ = tilt(pair, back, h, t)
        spectrum += count * np.log(rfft(np.bincount((np.arange(weight.size) + first) % size, weight, size)) + 1e-300)
        log += count * logs
    z = t - 2j * math.pi * np.arange(size // 2 + 1) / (size * h)
    terms = np.exp(spectrum - z * h) * -math.expm1(-h) / (np.expm1(-z * h) * np.expm1(-(z + 1) * h))
    found = irfft(terms, size)[steps % size] + 8e-16 * (releases + 100) * np.abs(terms).sum() / size
    found = np.exp(np.minimum(log - t * h * steps, 700)) * np.maximum(found, 0) * (1 + ROUNDING)
    return np.minimum(found + releases * TAIL, 1.0)


def plan(laws: dict[Pair, int], back: bool, delta: float) -> tuple[float, float, float, float]:
    """The t at which Markov's inequality gives the least epsilon for ``delta``; that epsilon, a width, a step."""
    top = max(highest(pair, way) for pair in laws for way in (back, not back))

    def at(log_t: float) -> tuple[float, float]:
        t = math.exp(log_t)
        found = [(count, tilt(pair, back, top / 1000, t)) for pair, count in laws.items()]
        moment = sum(count * one[0] for count, one in found) - math.log(delta)
        return (moment + t * math.log(t) - (1 + t) * math.log1p(t)) / t, sum(count * one[3] for count, one in found)

    log_t = minimize_scalar(lambda v: at(v)[0], bounds=(-5, math.log(600 / top)), method="bounded").x
    (most, variance), t = at(log_t), math.exp(log_t)
    width = max(20 * math.sqrt(variance) + top, (30 - math.log(delta)) / t)
    return t, max(most, 0.0), width, math.sqrt(variance / sum(laws.values())) / 20


def epsilon(laws: dict[Pair, int], delta: float) -> float:
    """The smallest epsilon proved here at ``delta``, of a count of each pair: lattices are refined while that helps."""
    best = [math.inf, math.inf]
    for back in (False, True):
        t, most, width, _ = plan(laws, back, delta)
        for size in (1 << k for k in range(12, 23)):
            h, before = width / size, best[back]
            steps = np.arange(size) + max(0, math.ceil(most / h) + 3 - size)
            found = bounds(laws, back, h, size, t, steps)
            k = int(np.argmax(found <= delta))
            share = (delta - found[k]) / (found[k - 1] - found[k]) if k else 0.0  # of a chord in exp(loss), above delta
            if found[k] <= delta:
                best[back] = min(before, max(h * steps[k] + math.log1p(share * math.expm1(-h)), 0.0))
            if before - best[back] <= 2e-4 * best[back]:
                break
    return max(best)


def mu(laws: dict[Pair, int]) -> float:
    """The least whose N(mu) and N(0) are as easy to tell apart, by tests with errors from `LEAST` up; at 400 losses."""
    points, deltas = np.linspace(0, min(epsilon(laws, DELTAS[-1]), -math.log(LEAST)), 400), np.zeros(400)
    for back in (False, True):
        found = np.ones(400)
        for t, _, width, step in (plan(laws, back, delta) for delta in DELTAS):
            size = 1 << min(20, max(13, math.ceil(math.log2(width / step))))
            h, at = width / size, np.floor(points * size / width).astype(int)
            left, right = bounds(laws, back, h, size, t, np.stack([at, at + 1]))
            found = np.minimum(found, left + (right - left) * np.expm1(points - h * at) / math.expm1(h))  # their chord
        deltas = np.maximum(deltas, found)
    hits, low, high = deltas + np.exp(points) * LEAST, np.zeros(400), np.full(400, 100.0)
    last = int(np.argmin(hits))  # tangents further on have fewer false alarms
    for _ in range(60):
        m = (low + high) / 2
        enough = ndtr(m / 2 - points / m) - np.exp(points + log_ndtr(-m / 2 - points / m)) >= deltas
        low, high = np.where(enough, low, m), np.where(enough, m, high)
    return max(float(high[: last + 1].max()), float(ndtri(min(hits[last], 1.0)) - ndtri(LEAST)))


def pair_of(law: Found, replaced: bool) -> Pair:
    """The pair of one release of a law, or of all records of a stream."""
    if law["mechanism"] == "stream" and law["law"] == "gaussian" and law["moved"] is not None and replaced:
        j, last = np.arange(law["records"]), {"random_walk": 1, "banded": law.get("bands")}.get(law["temporal"])
        root = np.cumprod(np.where(j > 0, (2 * j - 1) / np.maximum(2 * j, 1), 1.0))  # coefficients of (1 - x)^(-1/2)
        kernel = np.where(j < (last or j.size), 1.0 if law["temporal"] == "independent" else root, 0.0)
        return "one", 1.0, abs(law["moved"] / law["standard_deviation"]) * float(np.linalg.norm(np.cumsum(kernel)))
    kind, sampling = law["mechanism"], law.get("sampling")
    if "Gaussian" not in kind or sampling not in (("Poisson", "FixedSize") if replaced else ("Poisson",)):
        raise ArithmeticError(f"nothing is proved here of {law.get('law', '')} {kind}, {sampling} under this relation")
    q = law["probability"] if sampling == "Poisson" else law["batch_size"] / law["dataset_size"]
    m = (2 if replaced and kind == "Gaussian" and (q == 1 or sampling == "FixedSize") else 1) / law["noise_multiplier"]
    if not (0 < q <= 1 and 0 < m < math.inf):
        raise Unreadable(f"expected a rate in (0, 1] and a noise multiplier above 0, found {law}")
    fixed = sampling == "FixedSize" or kind == "BallGaussian"
    return "one" if q == 1 or not replaced else "fixed" if fixed else "both", q, m


def read(path: Path) -> Found:
    """The chain in a file: its laws, its parties, its head, whether it is signed, and where a plan was not kept to."""
    state, time, counts = bytes(32), -math.inf, Counter[Any]()
    found: Found = {"parties": {}, "broken": [], "head": None}
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            one = json.loads(line)
            if number == 1 and int(one["receipts"]) > FORMAT:
                raise Unreadable(f"receipts of format {one['receipts']}, newer than {FORMAT}; get a newer verifier")
            if one["chain"] != state.hex()[:16] or found["head"]:
                raise Unreadable(f"the chain is broken at line {number}, which does not follow the line before")
            if number == 1:
                found |= {"laws": [], "key": one["key"]}
            elif isinstance(one.get("law"), dict):
                found["laws"].append(one["law"])
                if one["law"]["mechanism"] not in KNOWN.split():
                    raise Unreadable(f"unknown mechanism {one['law']['mechanism']!r} at line {number}")
            elif "party" in one and not counts and one["party"] not in found["parties"]:
                if not all(law.isdecimal() and type(m) is int and m >= 0 for law, m in (one["most"] or {}).items()):
                    raise Unreadable(f"line {number}: expected whole numbers of releases, found {one['most']}")
                found["parties"][one["party"]] = one
            elif "head" in one:
                if (one["head"], one["releases"]) != (state.hex(), sum(counts[name] for name in found["parties"])):
                    raise Unreadable("the head in the last line is not that of the lines before it")
                found |= {"head": state.hex(), "releases": one["releases"], "signed": found["key"] is not None}
                if found["signed"]:
                    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

                    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["key"]))
                    key.verify(bytes.fromhex(one["signature"]), SIGNED + state)
            else:
                of, law, now = one["of"], str(int(one["law"])), time if one["time"] is None else float(one["time"])
                counts[of] += 1
                if one["number"] != counts[of] or not now >= time:
                    raise Unreadable(f"the release of {of} at line {number} is out of order")
                time, most = now, found["parties"][of]["most"]
                for owner in one.get("owners", found["parties"][of].get("owners", [""])):
                    counts[of, owner, law] += 1
                    if most is not None and counts[of, owner, law] > most.get(law, 0):
                        found["broken"].append(f"{of} releases more than it planned, at line {number}")
        except (Unreadable, ImportError):
            raise
        except Exception as error:  # of JSON, of numbers, of signatures: whatever is wrong with a line
            raise Unreadable(f"line {number} is no receipt: {type(error).__name__} {str(error)[:60]}") from None
        state = hashlib.sha256(state + hashlib.sha256(line).digest()).digest()
    if not found["head"]:
        raise Unreadable("the chain has no end: its last lines are missing, or the run was killed")
    return found


def judge(entry: Found, receipts: Found, when: str) -> Found:
    """Verdict on one entry of a guarantee, by the plans of those who release to its observer."""
    said: Found = {name: entry[name] for name in ("unit", "observer", "delta", "epsilon", "mu")} | {"plans": []}
    replaced = {"add_or_remove_one": False, "replace_one": True}[entry["neighboring_relation"]]
    if entry.get("privacy") == "none":
        return said | {"verdict": "promises nothing"}
    try:
        plans: dict[Any, list[str]] = {}
        for name, party in receipts["parties"].items():
            if entry["observer"].startswith("own server") == ("to" in party):
                if party["most"] is None or not entry["unit"].startswith(tuple(party["protects"])):
                    raise ArithmeticError(f"{name} has no plan, or protects another unit than each {entry['unit']}")
                laws = Counter[Pair]()
                for index, most in party["most"].items():
                    law = {"moved": party.get("moved"), **receipts["laws"][int(index)]}
                    laws[pair_of(law, replaced)] += most if "sampling" in law or law["records"] != most else 1
                plans.setdefault(frozenset((+laws).items()), []).append(name)
        if not plans or entry["rows_per_person"] not in (None, 1) or entry["epsilon"] is entry["mu"] is None:
            raise ArithmeticError("no receipts are about this observer, persons with several examples, or no number")
        for each, names in ((dict(each), names) for each, names in plans.items()):
            said["plans"].append({"parties": names, "epsilon": epsilon(each, entry["delta"]), "mu": mu(each)})
    except ArithmeticError as why:
        return said | {"verdict": f"not verified: {why}"}
    for name, slack in (("epsilon", SLACK), ("mu", 10 * SLACK)):
        proved = said[f"proved_{name}"] = max(one[name] for one in said["plans"])
        if entry[name] is not None and not proved <= entry[name] * (1 + slack):
            return said | {"verdict": f"does not follow: {name} is {proved:.6g}, promised {entry[name]:.6g}"}
    return said | {"verdict": f"follows{when}"}


def verify(place: Path, card: Path | None = None) -> Found:
    """Verdict of receipts on the guarantee beside them, or in another file."""
    path, card = (place / "receipts.jsonl", card or place / "guarantee.json") if place.is_dir() else (place, card)
    try:
        receipts, stated = read(path), {"guarantees": []} if card is None else json.loads(card.read_bytes())
        if card is not None and (stated["format"] != FORMAT or not stated["guarantees"]):
            raise Unreadable(f"{card}: expected a guarantee of format {FORMAT} that promises something")
        both = [(one, one.get("would_be")) for one in stated["guarantees"]]
        found = [judge(then or one, receipts, ", if the noise were secret" if then else "") for one, then in both]
        other = card is not None and (stated.get("receipts") or {}).get("head") != receipts["head"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
        raise Unreadable(f"{path} and {card}: {type(error).__name__} {error}") from None
    said = {name: receipts[name] for name in ("head", "releases", "signed", "key")} | {"guarantees": found}
    said["wrong"] = receipts["broken"][:1] + ["the guarantee is about other receipts"] * other
    good = all(one["verdict"].startswith(("follows", "promises nothing")) for one in found)
    return said | {"follows": good and not said["wrong"]}


def main(arguments: list[str]) -> int:
    try:
        found = verify(*(Path(one) for one in arguments if one != "--json"))
    except (Unreadable, TypeError) as why:
        print("gossamer verify:", repr(str(why))[1:-1], file=sys.stderr)  # a stranger's names may have any characters
        return 2
    signed = f"signed by {found['key']}" if found["key"] else "unsigned, so that whoever has the file can write another"
    lines = [f"{found['releases']} receipts, head {found['head']}, {signed}", *found["wrong"]]
    for one in found["guarantees"]:
        lines.append(f"{one['verdict']}: {one['unit']}, against {one['observer']}")
        for each in one["plans"]:
            names = ", ".join(each["parties"][:3]) + ", ..." * (len(each["parties"]) > 3)
            lines.append(f"  epsilon {each['epsilon']:.6g} at delta {one['delta']:g}, mu {each['mu']:.5g}: {names}")
    print(json.dumps(found) if "--json" in arguments else "\n".join(repr(line)[1:-1] for line in lines))
    return 0 if found["follows"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
