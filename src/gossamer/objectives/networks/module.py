"""PyTorch modules as objectives.

How a module's gradients are computed for examples of one shape is chosen once, by tables, never by a clock.

| what the module is made of | ``auto`` is |
|---|---|
| a chain of layers with kernels (`networks.kernel`), found to agree with torch | ``compiled`` |
| layers with rules of their own (`networks.layers`), found to agree with the reference | ``layers`` |
| anything with a loss of another distribution (`networks.network`) | ``threads`` |
| anything else that ``torch.func`` can vectorise | ``threads`` |
| anything else | ``loop`` |

Processor time of one call for 16 nodes, relative to ``threads`` (torch 2.13, one thread, batch a node):

| model | parameters | strategy | 4 | 8 | 16 | 32 | 64 |
|---|---|---|---|---|---|---|---|
| `cnn_mapa` | 4,380 | ``layers`` | 0.61 | 0.66 | 0.69 | 0.69 | 0.76 |
| | | ``vmap`` | 0.36 | 0.57 | 0.71 | 0.92 | 1.14 |
| `lenet5` | 61,706 | ``layers`` | 0.70 | 0.70 | 0.63 | 0.60 | 0.54 |
| | | ``vmap`` | 0.51 | 0.92 | 1.27 | 1.54 | 1.72 |
| `mlp` | 199,210 | ``layers`` | 0.53 | 0.55 | 0.28 | 0.17 | 0.04 |
| | | ``vmap`` | 1.85 | 2.54 | 2.77 | 3.00 | 1.11 |

``vmap`` wins for the smallest models at the smallest batches only, and is never chosen by itself: with it, a node's
result is rounded differently in other company, so a simulation would not repeat a deployment bit for bit.
"""

from __future__ import annotations

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, ModelError, SpecError
from gossamer.objectives import objective
from gossamer.objectives.chains.compiled import MADE, has_products, kernel_of
from gossamer.objectives.network_settings import OwnLoss
from gossamer.objectives.networks import checks, gradients
from gossamer.objectives.networks.kernel import Kernel, Unknown, chain_of, descend, walk
from gossamer.objectives.networks.network import Network, flat_parameters, frozen_digest, loss_of
from gossamer.objectives.networks.stand_ins import check_embedded, embeddings
from gossamer.threads import available_cores

Method = Callable[[Tensor, gradients.PaddedBatch, Tensor], gradients.GradientSums]
Owned = TypeVar("Owned")


@dataclass(frozen=True)
class Strategy:
    """A way to gradients in torch, and how much goes into one call of it.

    Attributes
    ----------
    method : callable
        (Network, steady) -> Method.
    examples : int
        The most in one call, if memory allows. More amortise the cost of a call, fewer keep threads busy.
    nodes : int
        The most in one call.
    copies : float
        Numbers held for each number that a layer puts out.
    gradients : float
        Numbers held for each parameter, per example.
    """

    method: Callable[[Network, bool], Method]
    examples: int
    nodes: int
    copies: float
    gradients: float

    def limit(self, memory: int, put_out: int, size: int, itemsize: int) -> int:
        """Examples that ``memory`` bytes suffice for, at least one."""
        each = (self.copies * put_out + self.gradients * size) * itemsize
        return max(1, min(self.examples, int(memory / max(1.0, each))))


STRATEGIES: Mapping[str, Strategy] = {
    "layers": Strategy(gradients.LayerGradients, examples=64, nodes=1, copies=4, gradients=0),
    "threads": Strategy(gradients.ExampleGradients, examples=128, nodes=1, copies=3, gradients=1.5),
    "vmap": Strategy(gradients.ExampleGradients, examples=256, nodes=16, copies=3, gradients=1.5),
    "loop": Strategy(gradients.LoopedGradients, examples=128, nodes=1, copies=0, gradients=2),
}


COMPILED = "compiled"
"""Strategy of chains that have kernels; what these cannot hold is computed like ``threads``."""

_FORWARD = Strategy(gradients.ExampleGradients, examples=512, nodes=1, copies=1, gradients=0)


class Lending(Generic[Owned]):
    """Things that one thread at a time may use, made when all others are lent."""

    def __init__(self, make: Callable[[], Owned]) -> None:
        self._make = make
        self._idle: list[Owned] = []

    @contextmanager
    def lend(self) -> Iterator[Owned]:
        """One of them, until the block ends."""
        try:
            one = self._idle.pop()
        except IndexError:
            one = self._make()
        try:
            yield one
        finally:
            self._idle.append(one)


@dataclass(frozen=True)
class NetworkPlan:
    """Decisions for examples of one shape.

    Attributes
    ----------
    strategy : str
        The row of `STRATEGIES`, or ``compiled``; never ``auto``.
    kernel : Kernel or None
        Compiled, of a chain.
    methods, networks : Lending
        Methods for gradients, and networks for outputs alone, each lent to one thread at a time.
    examples, rows : int
        The most in one call for gradients, and for outputs alone.
    nodes : int
        The most in one call for gradients.
    classes : int or None
        Number of classes that the module tells apart.
    unchained : str
        Reason why there is no kernel, where one was looked for; of ``loop``, why examples are not taken together.
    network : Network
        Network that gradients are taken of: that which is trained, or a graph of it that may see batches.
    put_out : int
        Numbers that the layers put out for an example.
    choosy : bool
        Whether its code may fail on some examples, so that it has to be tried on all before it is trained.
    outputs, target : tuple of int
        Shape of what the module returns for one example, and of the target of an example.
    """

    strategy: str
    kernel: Kernel | None
    methods: Lending[Method]
    networks: Lending[Network]
    examples: int
    rows: int
    nodes: int
    classes: int | None
    unchained: str
    network: Network
    put_out: int
    choosy: bool
    outputs: tuple[int, ...]
    target: tuple[int, ...]


def _different(models: FloatArray) -> tuple[FloatArray, IndexArray]:
    """The models of a stack that differ in a bit, and the place among them of each; all nodes begin with one model."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(hashlib.blake2b(np.ascontiguousarray(row).data).digest(), len(places)) for row in models]
    first = [which.index(place) for place in range(len(places))]
    return models[first], np.array(which, np.int64)


_LEAST_CLIP = 1e-9
"""Squares below the normal numbers are far below that of such a clip, and may count as zero in a norm."""


class TorchModule(objective.Objective):
    """The loss of a module's outputs, as a function of its trainable parameters.

    The module is copied, put in evaluation mode and never changed. Buffers and parameters that require no gradient
    stay as they are and are in no vector. A split is checked the first time it is seen and must not be changed
    afterwards.

    Under every strategy but ``vmap``, a row of `clipped_gradients` has the same bits whatever other rows are computed
    with it, and whatever the number of threads or OMP_NUM_THREADS. No global random generator is drawn from.

    Parameters
    ----------
    module : torch.nn.Module
        Takes examples [n, ...] and returns what the loss needs.
    loss : str or OwnLoss
        ``cross_entropy`` (outputs [n, classes, ...], targets are class numbers [n, ...]; one output is the logit of two
        classes), ``mse`` (the squared error of an example, not halved), ``binary_cross_entropy`` (outputs are logits
        of targets [n, ...]), or one's own, which sees one example at a time. Of several targets it is the mean.
    l2 : float
        Strength of the L2 term, at least 0.
    memory_mib : int
        Mebibytes that one thread may use for a batch; longer batches are computed in parts. It changes rounding.
    strategy : str
        ``compiled``: one kernel for a whole example, of chains of layers that there are kernels for (`chains`);
        ``layers``: one backward pass a batch, norms and sums layer by layer; for modules of ordinary layers.
        ``threads``: every example's gradient by ``torch.func``; ``vmap``: the same for up to 16 nodes at once.
        ``loop``: every example's gradient by a backward pass of its own.
        ``auto``: the first of ``compiled``, ``layers``, ``threads`` and ``loop`` that the module permits. It changes
        rounding.
    threads : int or None
        Worker threads; None for as many as there are cores. It changes nothing but time.
    pretrained : bool
        Whether `initial` is the module as given, instead of drawing its parameters anew.
    exact : bool
        Whether also each example's gradient has the same bits whatever examples are computed with it. Kernels'
        have anyway; other strategies take examples one at a time, and ``vmap`` cannot.
    classes : int, optional
        Number of classes; it counts for a loss of one's own alone, and is None if that is of real targets.
    class_weight : ndarray [classes], optional
        Factor of the loss of each class's examples, which gradients have before they are clipped; see
        `objectives.class_weights`. Of ``cross_entropy`` alone.

    Attributes
    ----------
    parts : tuple of Part
        The trainable parameters, named and ordered as in ``module.state_dict()``.

    Raises
    ------
    SpecError
        For an unknown loss or strategy, a loss of other targets, or a number out of range.
    ModelError
        If the module cannot be trained with per-example gradients (see `networks.checks.private_copy`), or a loss of
        one's own does not do what `OwnLoss` asks for.

    Warns
    -----
    UserWarning
        If the module has dropout, which is switched off.

    Examples
    --------
    >>> TorchModule(nn.Sequential(nn.Flatten(), nn.Linear(784, 10))).size
    7850
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        loss: str | OwnLoss = "cross_entropy",
        l2: float = 0.0,
        memory_mib: int = 512,
        strategy: str = "auto",
        threads: int | None = None,
        pretrained: bool = False,
        exact: bool = False,
        classes: int | None = None,
        class_weight: npt.NDArray[np.float64] | None = None,
    ) -> None:
        _check_settings(l2, memory_mib, strategy, threads)
        if exact and strategy == "vmap":
            raise SpecError("strategy 'vmap' rounds by what is computed together, which exact rules out; choose 'auto'")
        own = checks.private_copy(module)
        training = tuple(name for name, layer in module.named_modules() if layer.training)
        self.parts, given = flat_parameters(own)
        self.size, self.dtype = len(given), given.dtype
        self.loss = loss
        known = loss_of(loss, classes)
        if class_weight is not None:
            if loss != "cross_entropy":
                raise SpecError("objective.class_weight is for networks with cross_entropy; leave it out")
            known = replace(known, weights=torch.tensor(class_weight, dtype=torch.float64))
        self.squared_error = 1.0 if loss == "mse" else None
        self.l2 = l2
        self.memory_mib = memory_mib
        self.strategy = strategy
        self.threads = threads or available_cores()
        self.pretrained = pretrained
        self.exact = exact
        self._network = Network(own, self.parts, known, training)
        self._steady, self._kernels = False, True
        self._steadied: TorchModule | None = None
        self._plans: dict[tuple[int, ...], NetworkPlan] = {}
        self._checked = objective.KnownSplits[NetworkPlan]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}, "_steadied": None}  # hooks are in these: a copy elsewhere makes its own

    def steady(self) -> objective.Objective:
        """The same module, whose gradients take as long whatever numbers they are made of.

        Numbers below the normal ones of their type, on which processors are slow, count as zero; and so does a gradient
        whose squared norm leaves the range of its type, instead of being looked at a second time.
        """
        if (twin := self._steadied) is None:  # one, so that it is checked once
            twin = self._steadied = copy.copy(self)
            twin._steady, twin._plans, twin._checked = True, {}, objective.KnownSplits()
        return twin

    def initial(self, generator: np.random.Generator) -> FloatArray:
        """Parameters drawn as each layer's ``reset_parameters`` draws them, [size].

        A parameter that no ``reset_parameters`` sets keeps the value it was given with. Layers draw from torch's
        generator, which is seeded from ``generator`` for the purpose and put back afterwards.
        """
        if self.pretrained:
            return flat_parameters(self._network.module)[1]
        module = copy.deepcopy(self._network.module)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(generator.integers(2**63)))
            module.apply(_reset)
        return flat_parameters(module)[1]

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: objective.Clip
    ) -> objective.Gradients:
        """See `Objective.clipped_gradients`.

        Raises
        ------
        ModelError
            If the module cannot take the examples of ``data``, or its gradients cannot be taken one by one.
        DataError
            If ``data``, the models or the indices do not fit, or there is not one clip a model.
        SpecError
            If a clip is not positive.
        """
        clips = objective.clips_of(clip, len(batches))
        plan = self.plan(data)
        models = self.rows(models, len(batches))
        for batch in batches:
            objective.check_indices(batch, len(data))
        flushed = self._steady and float(clips.min(initial=np.inf)) >= _LEAST_CLIP

        def compute(piece: gradients.Piece) -> objective.Gradients:
            some, limits = torch.from_numpy(models[piece.nodes]).clone(), torch.from_numpy(clips[piece.nodes])
            with plan.methods.lend() as method, gradients.without_subnormals(flushed):
                try:
                    index, present = gradients.padded(piece.indices)
                    x, y = (x.view(*index.shape, *x.shape[1:]) for x in self._examples(data, index.ravel()))
                    found = method(some, gradients.PaddedBatch(x, y, torch.from_numpy(present)), limits)
                except (RuntimeError, IndexError) as problem:  # of code of others, on examples unlike the made-up ones
                    where = checks.reason(problem, told=False)
                    raise ModelError(f"the module fails on some examples ({where}); let forward take them") from problem
            return objective.Gradients(*(tensor.numpy() for tensor in found))

        def again(node: int, row: int) -> objective.Gradients:
            """Gradient of one example by ``torch.func``, for what a kernel's numbers do not hold."""
            return compute(gradients.Piece([node], [np.array([row])]))

        if plan.kernel is not None:
            second = None if self._steady else again
            return plan.kernel.gradients(
                models, data, batches, clips, threads=self.threads, flushed=flushed, again=second
            )
        totals = objective.Gradients(np.zeros(models.shape, models.dtype), *np.zeros((2, len(models)), np.int64))
        work = gradients.pieces(batches, plan.examples, plan.nodes)
        for piece, found in zip(work, gradients.in_order(compute, work, self.threads)):
            for row, node in enumerate(piece.nodes):
                for total, part in zip(totals, found):
                    total[node] += part[row]
        return totals

    def evaluate(self, models: FloatArray, split: Split) -> objective.Evaluation:
        """Loss and accuracy of each of ``models`` [width, size] on ``split``, in bounded memory.

        Of equal scores the first class wins. A model that is not finite may score NaN.

        Raises
        ------
        ModelError
            If the module cannot take the examples.
        DataError
            If ``split`` is empty or does not fit, or the models do not.
        """
        if len(split) == 0:
            raise DataError("an evaluation needs at least 1 example, found an empty split")
        plan = self.plan(split)
        models, which = _different(self.rows(models, len(models)))
        if plan.kernel is not None:
            return objective.Evaluation(
                *(figures[which] for figures in plan.kernel.evaluation(models, split, self.threads))
            )
        work = [(row, part) for row in range(len(models)) for part in objective.slices(len(split), plan.rows)]

        def score(item: tuple[int, slice]) -> npt.NDArray[np.float64]:
            with plan.networks.lend() as network:
                outputs, targets = self._computed(network, models[item[0]], split, item[1])
                losses = network.loss.values(outputs, targets).double().sum()
                correct = losses * np.nan
                if plan.classes:  # of several places of an example, the share
                    right = network.loss.scores(outputs).argmax(1) == targets
                    correct = right.double().reshape(len(targets), -1).mean(1).sum()
            return np.array([losses, correct], np.float64)

        totals = np.zeros((len(models), 2))
        for (row, _), scores in zip(work, gradients.in_order(score, work, self.threads)):
            totals[row] += scores
        loss, accuracy = totals[which].T / len(split)
        return objective.Evaluation(loss, accuracy)

    def losses(self, models: FloatArray, split: Split) -> npt.NDArray[np.float64]:
        """The loss of each example under each of ``models``, [width, examples]; see `Objective.losses`.

        Raises
        ------
        ModelError
            If the module cannot take the examples.
        DataError
            If ``split`` or the models do not fit.
        """
        plan = self.plan(split)
        models = self.rows(models, len(models))
        if plan.kernel is not None:
            return plan.kernel.scores(models, split, self.threads)[0]
        found = np.empty((len(models), len(split)))
        with plan.networks.lend() as network:
            for row, model in enumerate(models):
                for part in objective.slices(len(split), plan.rows):
                    computed = self._computed(network, model, split, part)
                    found[row, part] = network.loss.values(*computed).double().numpy()
        return found

    def scores(self, model: FloatArray, features: Features) -> npt.NDArray[np.float64]:
        """Return the module's outputs for examples, [n, outputs]; see `Objective.scores`.

        Raises
        ------
        ModelError
            If the module cannot take the examples.
        DataError
            If the model does not fit.
        """
        plan, (model,), count = self._plan_of(tuple(features.shape[1:])), self.rows(model[None], 1), features.shape[0]
        data = Split(features, np.zeros((count, *plan.target), np.int64))
        self.plan(data)
        found = [np.empty((0, plan.classes or 1))]
        with plan.networks.lend() as network:
            for part in objective.slices(count, plan.rows):
                outputs, _ = self._computed(network, model, data, part)
                found.append(network.loss.scores(outputs).reshape(len(outputs), -1).double().numpy())
        return np.concatenate(found[1:] or found)

    def _computed(self, network: Network, model: FloatArray, data: Split, part: slice) -> tuple[Tensor, Tensor]:
        """Outputs for some examples, and their targets."""
        features, targets = self._examples(data, part)
        with torch.no_grad():
            outputs = network.outputs(network.parameters(torch.tensor(model)), network.arrange(features))
        return outputs, targets

    def _examples(self, data: Split, index: IndexArray | slice) -> tuple[Tensor, Tensor]:
        """Features [examples, ...], dense, and targets [examples] of some examples."""
        given: Any = data.features[index]
        dtype = getattr(torch, self.dtype.name)
        # torch.tensor copies to memory aligned in one way, so that sums are rounded in one way.
        features = torch.tensor(given.toarray() if sp.issparse(given) else given, dtype=dtype)
        kind = torch.int64 if self._network.loss.classifies else dtype
        return features, torch.tensor(data.targets[index], dtype=kind)

    def local_steps(self, given: objective.LocalRound, data: Split) -> objective.LocalSum:
        """See `Objective.local_steps`."""
        kernel = self.plan(data).kernel
        if kernel is None or self.dtype != np.float32 or given.where.step > 1:
            return super().local_steps(given, data)
        return walk(kernel, objective.checked(given, self.size, len(data)), data, self.l2)

    def descended(self, models: FloatArray, data: Split, given: objective.Descent) -> objective.LocalUpdates:
        """See `Objective.local_updates` and `Objective.local_training`; one agent a thread, where there are kernels."""
        if (kernel := self.plan(data).kernel) is None:
            return super().descended(models, data, given)
        models = self.rows(models, len(given.steps))
        return descend(kernel, models, data, given, self.l2, self.threads)

    def computing(self) -> objective.Computing:
        """See `Objective.computing`; of the first data that gradients were asked for."""
        plan = next(iter(self._plans.values()), None)
        if plan is None:
            return objective.Computing(self.strategy)
        if plan.kernel is not None:
            made = MADE[plan.kernel.run]
            return objective.Computing(plan.strategy, "", made.kernels, made.seconds, plan.kernel.products)
        # Of modules that are no sequence at all nobody expects to be chains.
        expected = isinstance(self._network.module, nn.Sequential) or plan.strategy == "loop"
        return objective.Computing(plan.strategy, plan.unchained if expected else "")

    @property
    def frozen(self) -> str | None:
        """SHA-256 of what the module holds beside its trainable parameters; None if that is nothing."""
        return frozen_digest(self._network)

    @property
    def network(self) -> Network:
        """The module as a function of its parameters; a copy of its structure, for one thread."""
        return self._network.twin()

    def plan(self, data: Split) -> NetworkPlan:
        """Plan of how gradients on ``data`` are computed; the data is checked the first time."""
        if (known := self._checked.get(data)) is not None:
            return known
        plan = self._plan_of(tuple(data.features.shape[1:]))
        if data.targets.ndim == 1 and plan.target:
            wanted, found = self._network.loss.outputs, list(plan.outputs)
            raise ModelError(f"the module must return {wanted}, found shape {found} for one example")
        gradients.check_split(data, plan.target, plan.classes, self.loss == "binary_cross_entropy")
        self._check_taken(data, plan)
        return self._checked.setdefault(data, plan)

    def _plan_of(self, shape: tuple[int, ...]) -> NetworkPlan:
        if shape not in self._plans:
            self._plans[shape] = self._planned(shape)
        return self._plans[shape]

    def _planned(self, shape: tuple[int, ...]) -> NetworkPlan:
        """Try the network on made-up examples of ``shape``, and decide.

        Raises
        ------
        ModelError
            If the module cannot take such examples, its outputs do not suit the loss, it mixes examples, its gradients
            cannot be taken one example at a time, or not by the strategy asked for.
        """
        network, chosen = self._network, self.strategy
        model = torch.from_numpy(flat_parameters(network.module)[1])
        # A module that draws numbers is about to be refused.
        with gradients.one_torch_thread(), torch.random.fork_rng(devices=[]):
            tried, any_numbers = checks.tried_on(network.copied(), model, shape)
            with torch.no_grad():
                outputs = network.copied().outputs(network.parameters(model), tried[:1])
            target, model = network.loss.target_of(tuple(outputs.shape)), checks.moved(network)
            kernel, no_kernel = (None, "kernels are for one target an example" if target else "")
            if chosen in ("auto", COMPILED) and self._kernels and not target:
                kernel, no_kernel = self._kernel(network, model, shape)
            checks.check_alone(network, model, tried)
            put_out = gradients.activations(network.module, partial(checks.outputs_problem, network, model, tried[:1]))
            del model  # of a large network there is little room
            # A chain's layers are torch's own and nothing else, so there is one way to their gradients.
            looped, layers, batched = (None, None, network) if kernel else checks.probe(network, tried, target)
        if looped and (self._steady or self.exact or chosen not in ("auto", "loop")):
            asked = f"strategy '{chosen}'" if chosen not in ("auto", "loop") else "compute.rounding: exact"
            raise ModelError(checks.WORDS["looped"].format("a deployment" if self._steady else asked, looped))
        if layers and chosen == "layers":
            raise ModelError(f"strategy 'layers' cannot be used, since {layers}; choose 'auto'")
        if chosen == COMPILED and kernel is None:
            raise ModelError(f"strategy 'compiled' cannot be used, since {no_kernel}; choose 'auto'")
        if chosen == "auto":
            chosen = COMPILED if kernel else "loop" if looped else "threads" if layers else "layers"
        row, memory = STRATEGIES["threads" if kernel else chosen], self.memory_mib * 2**20
        taken = batched if chosen == "layers" else network
        return NetworkPlan(
            chosen,
            kernel,
            Lending(lambda: row.method(taken.twin(), self._steady)),
            Lending(network.twin),
            # Torch rounds otherwise for another number of examples.
            1 if self.exact else row.limit(memory, put_out, network.size, self.dtype.itemsize),
            _FORWARD.limit(memory, put_out, network.size, self.dtype.itemsize),
            row.nodes,
            network.loss.scores(outputs).shape[1] if network.loss.classifies else None,
            no_kernel if looped is None else f"torch.func cannot vectorise the module ({looped})",
            taken,
            put_out,
            looped is not None or not any_numbers,
            tuple(outputs.shape),
            target,
        )

    def _kernel(self, network: Network, model: Tensor, shape: tuple[int, ...]) -> tuple[Kernel | None, str]:
        """The kernel of the network's chain, which agrees with torch at ``model``, or why there is none."""
        if self.loss not in ("cross_entropy", "mse"):
            return None, "kernels are for the losses cross_entropy and mse"
        if network.loss.weights is not None:
            return None, "kernels know no weights of classes"
        try:
            chain = chain_of(network.module, shape, self.parts)
            if network.loss.classifies and chain[-1].after.size == 1:
                raise Unknown("no kernel has one output for two classes")
        except Unknown as problem:
            return None, str(problem)

        def tried(products: bool) -> tuple[Kernel, str | None]:
            run = kernel_of(chain, str(self.loss), self.dtype, products)
            kernel = Kernel(run, self.dtype, network.loss.classifies, products)
            with kernel.alone():
                return kernel, checks.kernel_problem(kernel, network, model, shape)

        if has_products(chain) and not (self._steady or self.exact):
            wide, why = tried(products=True)

            @cache
            def of_one() -> Kernel:
                kernel, why = tried(products=False)
                return wide if why else kernel

            if why is None:
                return replace(wide, of_one=of_one), ""
        kernel, why = tried(products=False)
        return (None, why) if why else (kernel, "")

    def _check_taken(self, data: Split, plan: NetworkPlan) -> None:
        """Raise DataError for examples that the module cannot take; later nobody looks at single ones."""
        if not plan.choosy and not embeddings(self._network.module):
            return
        network = self._network.twin()
        parameters = network.parameters(torch.from_numpy(flat_parameters(network.module)[1]))
        parts = objective.slices(len(data), plan.rows)
        outputs = (network.outputs(parameters, self._examples(data, part)[0]) for part in parts)
        try:
            with torch.no_grad():
                check_embedded(network.module, outputs)
        except DataError:
            raise
        except Exception as problem:  # whatever others' code does
            raise DataError(checks.WORDS["fails"].format(checks.reason(problem, told=False))) from problem


def _reset(layer: nn.Module) -> None:
    for name in ("reset_parameters", "_reset_parameters"):  # the second is torch's own, of attention layers
        if callable(reset := getattr(layer, name, None)):
            reset()
            return


def _check_settings(l2: float, memory_mib: int, strategy: str, threads: int | None) -> None:
    if strategy not in ("auto", COMPILED, *STRATEGIES):
        raise SpecError(f"strategy is one of auto, {COMPILED}, {', '.join(STRATEGIES)}, found {strategy!r}")
    if not (0 <= l2 < float("inf") and memory_mib >= 1 and (threads is None or threads >= 1)):
        found = f"{l2}, {memory_mib} and {threads}"
        raise SpecError(f"expected l2 of 0 or more, memory_mib of 1 or more and threads alike or None, found {found}")
