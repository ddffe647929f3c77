"""Check a privacy guarantee from receipts: python gossamer_verify.py RESULTS|RECEIPTS [GUARANTEE]

It ends with 0 if what is promised of the parties in them follows, 1 if not, 2 if a file cannot be read. Receipts are a
chain by SHA-256; each party's whole plan counts. A release is dominated by a pair (P, Q) of laws, and pairs compose
(Zhu, Dong, Wang, AISTATS 2022). N(m) has variance 1, C is the clip, K of a person's r examples are in a sample.
   one    Poisson sample of rate q, m = C/sd, K binomial; they come or go (Ganesh, 2024): N(K m) and N(0), and turned
   both   the same, they are replaced: N(K m) and N(-K m)
   fixed  the share q of all; one is replaced, m = 2 C/sd: losses > 0 as of `one`, losses < 0 mirrored (Balle, Barthe,
          Gaboardi, NeurIPS 2018, theorem 9); sums clipped as a whole (BallGaussian): m = C/sd, and q that of any K > 0
   q = 1  all examples, m = C/sd or 2 C/sd: N(r m) and N(0); sd^2 adds up over parties in a sum; and a whole stream of
          normal noise B z, B K the matrix of ones, updates moved by D: m = D |K 1|/sd (Denisov et al., NeurIPS 2022)
   Losses log(P/Q) of pieces of outputs go on a lattice of step h, P's mass to both sides, so that P's and Q's masses
   stay, which only raises H ("connect the dots", Doroshenko et al., PoPETs 2022). L is the sum of losses, M(z) =
   E exp(z L), t > 0: exp(t e) delta(e), e = j h, has the transform M(z) K(z), z = t - i s, x = exp(-z h), y = exp(-h),
   K = x (1-y)/((1-x)(1-x y)). N frequencies give it summed over j equal modulo N: an upper bound for all t, h, N"""

import json
import math
import re
import sys
from collections import Counter
from functools import lru_cache, reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import bisect
from scipy.special import binom, log_ndtr, ndtr, ndtri

CHAIN, FORMAT, TAIL, LEAST = 3, 2, 1e-30, 1e-10  # of files; infinite losses; errors of the tests that mu is about
SLACK = {"epsilon": 1e-3, "mu": 1e-2, "best_guess": 1e-4}  # relative, between two computations
SIGNED = b"t\x03\0\0\0s\x08\0\0\0gossamers\x08\0\0\0receiptsb \0\0\0"  # before the head that a party's key signs
WIRES, NODE = ", malicious ones included, and anyone on the wires", "example of a node's shard"
WHOEVER, HELD = "whoever sees the released histograms, all other nodes included, malicious ones too", "held-out " + NODE
SUM = re.compile("whoever sees the sum of all histograms, and up to ([0-9]+) of the ([0-9]+) parties together with it")
P, Y = 2**255 - 19, 2707385501144840649318225287225658788936804267575313519463743609750303402022
EASY = {0, 1, P - 1, Y, P - Y}  # modulo P, coordinates of the keys of low order, by which anybody signs
CARD = {"gossamer", "mechanism", "registry", "software"}
CHECKED = ["unit", "observer", "delta", "neighboring_relation", "rows_per_person", "run", "party"]
ENTRY = {*CHECKED, *SLACK, "assumptions", "privacy", "profile", "proof", "remarks", "would_be"}
PROTECTED = {  # by observer, whose words say how data leave: from nodes, from units, or through a trusted server
    WHOEVER: HELD,
    "all other nodes together" + WIRES: NODE,
    "whoever sees all models of a node, all other nodes together included": NODE,
    "the server and all other clients together" + WIRES: "client with all of its data",
    "all other clients together" + WIRES + ", but not the trusted server": "client with all of its data",
    "all other clients together, malicious ones included, and whoever sees what is released, but neither the trusted "
    "server nor anyone who sees whom it talks to, and when": "client with all of its data",
    "other units: all of them together" + WIRES + " between": "federated unit",
    "other units and agents: all other units together, malicious ones included, anyone on the wires between, and the "
    "other agents of the agent's own unit": "agent",
}
Pair = tuple[str, float, float, int]
Found = dict[str, Any]


class Unreadable(Exception): ...  # no chain of receipts, or no guarantee


def expect(true: Any, what: str) -> None:
    if not true:
        raise Unreadable(what)


def sound(digits: str) -> float:  # a number of a file: not negative, and neither infinite nor next to nothing
    value = float(digits)
    expect(value == 0 or 1e-100 <= value <= 1e100, f"expected numbers of 0, or 1e-100 to 1e100, found {digits[:20]}")
    return int(digits) if digits.isdecimal() else value


def once(pairs: list[tuple[str, Any]]) -> Found:  # of two values of a key each reader may take another
    expect(len(dict(pairs)) == len(pairs), f"expected each key once, found {', '.join(key for key, _ in pairs)[:200]}")
    return dict(pairs)


DECODER = json.JSONDecoder(parse_int=sound, parse_float=sound, parse_constant=sound, object_pairs_hook=once)


@lru_cache(32)
def pieces(pair: Pair, back: bool) -> Any:  # of outputs: least and largest loss, P's and Q's mass; or Q's and P's
    (shape, q, m, rows), masses, loss = pair, list[Any](), np.zeros(1)
    o, k, n = m / 2 + (12 + rows * m) * np.linspace(-1, 1, 2**16 + 1), np.arange(rows + 1), 2**15
    chances = binom(rows, k) * q**k * (1 - q) ** (rows - k)
    for sign, shift in ((1, m), (-1, -m * (shape == "both"))):  # a mixture, its masses and density over that of N(0)
        laws = [(chance, number * shift) for number, chance in enumerate(chances) if chance > 0]
        masses += [sum(w * np.where((z := o - c)[1:] > 0, -np.diff(ndtr(-z)), np.diff(ndtr(z))) for w, c in laws)]
        loss = loss + sign * reduce(np.logaddexp, (math.log(w) + o * c - c * c / 2 for w, c in laws))
    p, r = masses
    if shape == "fixed":
        loss, p, r = np.append(-loss[:n:-1], loss[n:]), np.append(r[n:][::-1], p[n:]), np.append(p[n:][::-1], r[n:])
    seen = (np.cumsum(p[::-1])[::-1] > TAIL) & (np.cumsum(r) > TAIL)
    low, high, p, r = loss[:-1][seen], loss[1:][seen], p[seen], r[seen]
    return (-high, -low, r, p) if back else (low, high, p, r)


def tilt(pair: Pair, back: bool, h: float, t: float) -> Any:  # masses, times exp(t loss), the first step, moments
    low, high, p, q = pieces(pair, back)
    left, right = np.floor(low / h).astype(int), np.floor(high / h).astype(int) + 1
    far = np.clip((p - q * np.exp(h * left) + 1e-12 * p) / -np.expm1(h * (left - right)), 0, p)
    mass = np.bincount(np.append(left, right) - (first := left.min()), np.append(p - far, far))
    mass[-first] += max(1 - mass.sum(), 0)
    weight = mass * np.exp(t * (x := h * (np.arange(mass.size) + first)))
    weight /= (total := weight.sum())
    return weight, first, np.array([math.log(total), weight @ x, weight @ (x - weight @ x) ** 2])


def bounds(laws: dict[Pair, int], back: bool, h: float, size: int, t: float, steps: Any) -> Any:  # of delta, from above
    log, releases, spectrum = 0.0, sum(laws.values()), np.zeros(size // 2 + 1, complex)
    for pair, count in laws.items():
        weight, first, moments = tilt(pair, back, h, t)
        spectrum += count * np.log(rfft(np.bincount((np.arange(weight.size) + first) % size, weight, size)) + 1e-300)
        log += count * moments[0]
    z = t - 2j * math.pi * np.arange(size // 2 + 1) / (size * h)
    terms = np.exp(spectrum - z * h) * -math.expm1(-h) / (np.expm1(-z * h) * np.expm1(-(z + 1) * h))
    found = irfft(terms, size)[steps % size] + 8e-16 * (releases + 100) * np.abs(terms).sum() / size
    found = np.exp(np.minimum(log - t * h * steps, 700)) * np.maximum(found, 0) * (1 + 1e-6)  # so much for rounding
    return np.minimum(found + releases * TAIL, 1.0)


def tilts(laws: dict[Pair, int], back: bool, delta: float) -> Any:  # t, width, deviation, Markov's bound of epsilon
    top, t, ahead, depth = max(np.abs(pieces(pair, False)[:2]).max() for pair in laws), 0.0, 0.0, 0.0
    while ahead < 600 / top and depth < -math.log(delta):
        log, mean, variance = sum(count * tilt(pair, back, top / 1000, ahead)[2] for pair, count in laws.items())
        deeper, deviation = ahead * mean - log, math.sqrt(variance)  # minus the log of a chance
        if not ahead or (deeper > 9 * depth + 5 and ahead > 1.01 * t):  # what lies between would be missed
            ahead = math.sqrt(t * ahead) if t else ahead / 3 or min(1 / deviation, 60 / top)
        else:
            yield ahead, max(20 * deviation + top, 70 / ahead), deviation, (log - math.log(delta)) / ahead
            t, ahead, depth = ahead, 3 * ahead, deeper


def proved(laws: dict[Pair, int], delta: float) -> Found:  # epsilon, right guesses, least mu: N(mu) as far from N(0)
    plan, epsilon = [(back, one) for back in (0, 1) for one in tilts(laws, bool(back), min(delta, 1e-14))], math.inf
    e = max(min(one[3] for way, one in plan if way == back) for back in (0, 1)) * np.linspace(0, 1, 60_000) ** 3
    for fine in (4, 6, 8, 10, 12):  # 2^fine steps of a lattice in the deviation of a release, while that helps
        found, before = np.ones((2, e.size)), epsilon
        for back, (t, width, deviation, _) in plan:
            size = 1 << min(22, max(8, math.ceil(math.log2(width / deviation * sum(laws.values()) ** 0.5))) + fine)
            h, at = width / size, np.floor(e / width * size).astype(int)
            left, right = bounds(laws, bool(back), h, size, t, np.stack([at, at + 1]))  # deltas are below the chord
            found[back] = np.minimum(found[back], left + (right - left) * np.expm1(e - h * at) / math.expm1(h))
        deltas = found.max(axis=0)
        epsilon = float(e[np.argmax(deltas <= delta)]) if deltas[-1] <= delta else math.inf
        if before - epsilon <= 1e-3 * epsilon:
            break
    hits = deltas + np.exp(e) * LEAST  # mu is about tests with errors from `LEAST` up: tangents up to the least one
    e, d = e[1 : (last := max(1, int(np.argmin(hits)))) + 1], deltas[:last]  # between two losses the first delta holds
    mu = bisect(lambda m: np.min(ndtr(m / 2 - e / m) - np.exp(e + log_ndtr(-m / 2 - e / m)) - d), 1e-99, 100.0)
    mu = max(mu, float(ndtri(min(hits.min(), 1.0)) - ndtri(LEAST)))
    return {"epsilon": epsilon, "mu": mu, "best_guess": (1 + float(deltas[0])) / 2}


def pair_of(law: Found, relation: str, rows: int = 1, honest: int = 1) -> Pair:  # of a release, or a whole stream
    kind, sampling, q, replaced = law["mechanism"], law.get("sampling"), 1.0, relation == "replace_one"
    if kind == "stream" and law["law"] == "gaussian" and law["moved"] is not None and replaced:
        expect(law["records"] <= 1e7, "expected at most 10,000,000 records")
        j = np.arange(law["records"] // 1)
        root = np.cumprod(np.where(j > 0, (2 * j - 1) / np.maximum(2 * j, 1), 1.0))  # coefficients of (1 - x)^(-1/2)
        kernels = {"independent": j >= 0, "random_walk": j < 1, "sqrt_toeplitz": root}
        kernel = {**kernels, "banded": root * (j < law.get("bands", 0) // 1)}[law["temporal"]]
        m = law["moved"] / law["standard_deviation"] * float(np.linalg.norm(np.cumsum(kernel)))
    elif kind in ("Gaussian", "BallGaussian") and sampling in ("Poisson", "FixedSize")[: 1 + (replaced and rows == 1)]:
        q = law["probability"] if sampling == "Poisson" else law["batch_size"] / law["dataset_size"]
        twice = replaced and kind == "Gaussian" and (q == 1 or sampling == "FixedSize")
        m = (1 + twice) / law["noise_multiplier"] / math.sqrt(honest)
        q, rows = (1 - (1 - q) ** rows, 1) if kind == "BallGaussian" else (q, rows)  # of all that a person has
    else:
        raise ArithmeticError(f"nothing is proved here of {law.get('law', '')} {kind}, {sampling} under this relation")
    expect(0 < q <= 1 and 0 < m < math.inf and law.get("batch_size", 1) % 1 == 0, f"no rate, or no noise: {law}")
    shape = "both" if (kind, sampling) == ("Gaussian", "Poisson") else "fixed"
    return shape if replaced and q < 1 else "one", q, m, rows


def read(path: Path) -> Found:  # the chain in a file: laws, plans, end, who signed it, whether plans were kept to
    state, counts, laws, parties = bytes(32), Counter[Any](), list[Found](), dict[str, Found]()
    found: Found = {"laws": laws, "parties": parties, "end": None, "card": None, "signer": None, "wrong": []}
    for at, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            one = DECODER.decode(line.decode())
            expect(at > 1 or one["receipts"] == CHAIN, f"expected receipts of format {CHAIN}; get a newer verifier")
            expect(one["chain"] == state.hex()[:16] and not found["end"], "the chain is broken before it")
            alike = who if isinstance(who := one.get("party", one.get("of")), list) else [who]
            if at == 1:
                found |= {"run": one["run"], "key": one["key"]}
            elif isinstance(one.get("law"), dict):
                laws.append(one["law"])
            elif "party" in one:
                most, known = one["most"] or {}, {*map(str, range(len(laws)))}
                whole = {*most} <= known and all(type(n) is int and n <= 10**12 for n in most.values()) and not counts
                for of in alike:
                    expect(whole and parties.setdefault(of, one) is one, "expected one plan, of laws before it")
            elif "guarantee" in one:
                found["card"] = one["guarantee"]
            elif "head" in one:
                found["end"] = {name: value for name, value in one.items() if name != "chain"}
                expect(one["releases"] == sum(counts[of] for of in parties) and one["head"] == state.hex(), "no head")
                if found["key"]:
                    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

                    key = bytes.fromhex(found["key"])
                    expect(int.from_bytes(key, "little") % 2**255 % P not in EASY, "found a key by which anybody signs")
                    Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(one["signature"]), SIGNED + state)
                    found["signer"] = "-".join(sha256(key).hexdigest()[i : i + 4] for i in range(0, 32, 4))
            else:
                law, more = one["law"], one.get("count", 1)
                other = HELD not in [parties[of]["unit"] for of in alike]  # histograms are clipped to 1
                clipped = "Gaussian" not in laws[law]["mechanism"] or one["clip"] == 1 or (one["clip"] > 0 and other)
                expect(clipped and type(more) is int and 0 < more <= 10**12, f"no clip, or {more} releases")
                for of in alike:
                    plan, counts[of] = parties[of], counts[of] + more
                    expect(one["number"] + more - 1 == counts[of], f"a release of {of} is out of order")
                    owners, most = one.get("owners", plan.get("owners", [of])), plan["most"]
                    expect(owners and {*owners} <= {*plan.get("owners", [of])}, f"{of} does not release of {owners}")
                    counts.update({(of, owner, law): more for owner in owners})
                    if most is not None and max(counts[of, owner, law] for owner in owners) > most.get(str(law), 0):
                        found["wrong"] = found["wrong"] or [f"{of} releases more than it planned, at line {at}"]
        except Exception as error:  # of JSON, of types, of signatures: whatever is wrong with a line
            raise Unreadable(f"line {at}: {type(error).__name__}: {error}") from None
        state = sha256(state + sha256(line).digest()).digest()
    expect(found["end"], "the chain has no end: its last lines are missing, or the run was killed")
    found["whose"] = [[found["run"], name] for name in (parties if found["key"] else [None])]
    return found | {"alone": f", for {', '.join(parties)} alone" if found["key"] else ""}


def judge(entry: Found, receipts: Found) -> Found:  # one entry of a guarantee, by plans that release to its observer
    unit, observer, delta, relation, rows, *about = map(entry.pop, CHECKED)  # what is left has not been checked
    wrong = receipts["wrong"] + ["it is about another run or party"] * (about not in receipts["whose"])
    said: Found = {"unit": unit, "observer": observer, "delta": delta, "plans": [], "verdict": "promises nothing"}
    promised = {name: most for name in SLACK if (most := entry.pop(name, None)) is not None}
    if (privacy := entry.pop("privacy", None)) is not None or "would_be" in entry:
        expect(privacy == "none" and not promised, "expected privacy none and no figures of what promises nothing")
        entry |= (then := entry.pop("would_be", None) or {})
        return judge(entry, receipts | {"alone": ", if the noise were secret"}) if then else said
    expect(relation in ("add_or_remove_one", "replace_one") and 0 <= delta < 1, f"no relation, or no delta: {delta}")
    many, some = f"person with at most {rows} %sexample{'s'[: rows != 1]}", type(rows) is int and 0 < rows <= 100
    whom = {many % "" + ", all at one node": NODE, many % "held-out ": HELD}.get(unit, unit) if some else unit
    others, of = [*map(int, joint.groups())] if (joint := SUM.fullmatch(observer)) else [0, 1]
    server, stream, seen = "trusted" in observer, observer.startswith("other units"), WHOEVER if joint else observer
    those = {name: one for name, one in receipts["parties"].items() if (one["unit"] == HELD) == (whom == HELD)}
    those = {name: one for name, one in those.items() if not stream or one["observer"] != "own server"}
    known, plans = PROTECTED.get(seen) == whom and (receipts["key"] or of in (1, len(those))), dict[Any, list[str]]()
    try:
        if not (promised and delta and those and known and others < of):
            raise ArithmeticError("no figure, or no unit or observer that is known here")
        for name, party in those.items():
            laws = Counter[Pair]()
            for index, most in (party["most"] or {}).items():
                law = {**receipts["laws"][int(index)], "moved": party.get("moved")}
                pair = pair_of(law, relation, rows or 1, of - others)
                laws[pair] += most if "sampling" in law or law["records"] != most else 1
            odd = (whom not in (NODE, "agent") and any(q < 1 for _, q, *_ in +laws)) != ("whom it talks to" in observer)
            told = party["unit"], party["observer"], "moved" in party, rows, odd or ("owners" in party and not server)
            if not laws or told != (whom, seen, stream, rows if whom != unit else "example" in unit or None, False):
                raise ArithmeticError(f"{name} has no plan that protects each {unit} from this observer")
            plans.setdefault(frozenset((+laws).items()), []).append(name)
        with np.errstate(all="raise", under="ignore"):
            said["plans"] = [{"parties": names, **proved(dict(laws), delta)} for laws, names in plans.items() if laws]
    except ArithmeticError as why:
        return said | {"verdict": f"not verified: {why}"}
    for name, most in promised.items():
        least = said[f"proved_{name}"] = max((one[name] for one in said["plans"]), default=math.inf)
        wrong += [f"{name} is {least:.6g}, promised {most:.6g}"] * (not least <= most * (1 + SLACK[name]))
    follows = "follows" + receipts["alone"] + f", if {of - others} of {of} parties add as much noise" * bool(joint)
    return said | {"verdict": "does not follow: " + "; ".join(wrong) if wrong else follows}


def verify(place: Path, card: Path | None = None) -> Found:  # of receipts on the guarantee beside them, or another
    path, card = (place / "receipts.jsonl", card or place / "guarantee.json") if place.is_dir() else (place, card)
    try:
        chain, stated, entries = read(path), Found(), list[Found]()
        if card:
            stated = DECODER.decode(card.read_text("utf-8"))
            ends = [stated.pop("receipts", None), sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()]
            entries, version = stated.pop("guarantees"), stated.pop("format")
            odd = sorted(({*stated} - CARD).union(*({*one} - ENTRY for one in entries)))
            expect(version == FORMAT and entries and not odd, f"expected format {FORMAT}, found {version}, keys {odd}")
            chain["wrong"] += ["the guarantee is about other receipts"] * (ends != [chain["end"], chain["card"]])
        found = [judge(one, chain) for one in entries]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
        raise Unreadable(f"{path}, {card or 'no guarantee'}: {type(error).__name__}: {error}") from None
    good = not chain["wrong"] and all(one["verdict"].startswith(("follows", "promises nothing")) for one in found)
    said = {**chain["end"], **{name: chain[name] for name in ("run", "key", "signer", "wrong")}, "guarantees": found}
    left = sorted({*stated}.union(*entries))
    return said | {"parties": [*chain["parties"]], "not_checked": left, "follows": good if card else good and None}


def main(arguments: list[str]) -> int:
    try:
        found = verify(*map(Path, arguments))
    except (Unreadable, TypeError) as why:
        print("gossamer verify:", repr(str(why))[1:-1], file=sys.stderr)  # a stranger's names may have any characters
        return 2
    print(json.dumps(found, indent=2).replace(": Infinity", ": null"))  # there is no infinity in JSON
    return int(found["follows"] is False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
