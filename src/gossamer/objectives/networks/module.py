"""PyTorch modules as objectives."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)
from gossamer.arrays import FloatArray, IndexArray
from gossamer.objectives.questions import (
    Clip,
    Evaluation,
    Gradients,
    LocalRound,
    LocalSums,
    LocalUpdates,
    clips_of,
)

# isort: split
import torch
from torch import nn

from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, ModelError, SpecError
from gossamer.objectives.chains.compiled import MADE
from gossamer.objectives.local_steps import checked
from gossamer.objectives.local_training import Descent
from gossamer.objectives.network_losses import OwnLoss
from gossamer.objectives.networks import kernel as torch_kernel
from gossamer.objectives.networks.checks import private_copy, reason
from gossamer.objectives.networks.gradients import (
    Piece,
    Tensors,
    check_indices,
    check_split,
    in_order,
    pieces,
    without_subnormals,
)
from gossamer.objectives.networks.network import Network, flat_parameters, frozen_digest, loss_of
from gossamer.objectives.networks.plan import COMPILED, STRATEGIES, NetworkPlan, make_plan
from gossamer.objectives.networks.stand_ins import check_embedded, embeddings
from gossamer.objectives.objective import KnownSplits, Objective
from gossamer.objectives.questions import Computing
from gossamer.threads import available_cores


def _computed(
    network: Network, model: FloatArray, data: Split, part: slice, tensors: Tensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs for some examples, and their targets."""
    parameters = network.parameters(torch.tensor(model))
    with torch.no_grad():
        outputs = network.outputs(*network.arrange(parameters, tensors.features(data, part)))
    return outputs, tensors.targets(data, part)


def _different(models: FloatArray) -> tuple[FloatArray, IndexArray]:
    """The models of a stack that differ in a bit, and the place among them of each; all nodes begin with one model."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(hashlib.blake2b(np.ascontiguousarray(row).data).digest(), len(places)) for row in models]
    first = [which.index(place) for place in range(len(places))]
    return models[first], np.array(which, np.int64)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


_LEAST_CLIP = 1e-9
"""Squares below the normal numbers are far below that of such a clip, and may count as zero in a norm."""


class TorchModule(Objective):
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
        ``cross_entropy`` (outputs [n, classes], targets are class numbers), ``mse`` (outputs [n] or [n, 1]; the
        squared error of an example, not halved), or one's own, which sees one example at a time.
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
    ) -> None:
        _check_settings(l2, memory_mib, strategy, threads)
        if exact and strategy == "vmap":
            raise SpecError("strategy 'vmap' rounds by what is computed together, which exact rules out; choose 'auto'")
        own = private_copy(module)
        given = tuple(name for name, layer in module.named_modules() if layer.training)
        self.parts, self._given = flat_parameters(own)
        self.size = len(self._given)
        self.dtype = self._given.dtype
        self.loss = loss
        known = loss_of(loss, classes)
        self.squared_error = 1.0 if loss == "mse" else None
        self.l2 = l2
        self.memory_mib = memory_mib
        self.strategy = strategy
        self.threads = threads or available_cores()
        self.pretrained = pretrained
        self.exact = exact
        self._network = Network(own, self.parts, known, given)
        self._tensors = Tensors(torch.from_numpy(self._given).dtype, known.classifies)
        self._steady, self._kernels = False, True
        self._plans: dict[tuple[int, ...], NetworkPlan] = {}
        self._checked = KnownSplits[NetworkPlan]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}  # which hold hooks: a copy in another place makes its own

    def steady(self) -> Objective:
        """The same module, whose gradients take as long whatever numbers they are made of.

        Numbers below the normal ones of their type, on which processors are slow, count as zero; and so does a gradient
        whose squared norm leaves the range of its type, instead of being looked at a second time.
        """
        twin = copy.copy(self)
        twin._steady, twin._plans, twin._checked = True, {}, KnownSplits()
        return twin

    def initial(self, generator: np.random.Generator) -> FloatArray:
        """Parameters drawn as each layer's ``reset_parameters`` draws them, [size].

        A parameter that no ``reset_parameters`` sets keeps the value it was given with. Layers draw from torch's
        generator, which is seeded from ``generator`` for the purpose and put back afterwards.
        """
        if self.pretrained:
            return self._given.copy()
        module = copy.deepcopy(self._network.module)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(generator.integers(2**63)))
            module.apply(_reset)
        return flat_parameters(module)[1]

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
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
        clips = clips_of(clip, len(batches))
        plan = self.plan(data)
        models = self.rows(models, len(batches))
        check_indices(batches, len(data))
        flushed = self._steady and float(clips.min(initial=np.inf)) >= _LEAST_CLIP

        def compute(piece: Piece) -> Gradients:
            some, limits = torch.tensor(models[piece.nodes]), torch.tensor(clips[piece.nodes])
            with plan.methods.lend() as method, without_subnormals(flushed):
                try:
                    found = method(some, self._tensors.batch(data, piece), limits)
                except (RuntimeError, IndexError) as problem:  # of code of others, on examples unlike the made-up ones
                    where = reason(problem, told=False)
                    raise ModelError(f"the module fails on some examples ({where}); let forward take them") from problem
            return Gradients(*(tensor.numpy() for tensor in found))

        def again(node: int, row: int) -> Gradients:
            """Gradient of one example by ``torch.func``, for what a kernel's numbers do not hold."""
            return compute(Piece([node], [np.array([row])]))

        if plan.kernel is not None:
            second = None if self._steady else again
            return plan.kernel.gradients(
                models, data, batches, clips, threads=self.threads, flushed=flushed, again=second
            )
        zeros = np.zeros((2, len(models)), np.int64)
        totals = Gradients(np.zeros_like(models), *zeros)
        work = pieces(batches, plan.examples, plan.nodes)
        for piece, found in zip(work, in_order(compute, work, self.threads)):
            for row, node in enumerate(piece.nodes):
                for total, part in zip(totals, found):
                    total[node] += part[row]
        return totals

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
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
            return Evaluation(*(figures[which] for figures in plan.kernel.evaluation(models, split, self.threads)))
        work = [(row, part) for row in range(len(models)) for part in _slices(len(split), plan.rows)]

        def score(item: tuple[int, slice]) -> npt.NDArray[np.float64]:
            with plan.networks.lend() as network:
                outputs, targets = _computed(network, models[item[0]], split, item[1], self._tensors)
                losses = network.loss.values(outputs, targets).double().sum()
                correct = (network.loss.scores(outputs).argmax(1) == targets).sum() if plan.classes else losses * np.nan
            return np.array([losses, correct], np.float64)

        totals = np.zeros((len(models), 2))
        for (row, _), scores in zip(work, in_order(score, work, self.threads)):
            totals[row] += scores
        loss, accuracy = totals[which].T / len(split)
        return Evaluation(loss, accuracy)

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
                for part in _slices(len(split), plan.rows):
                    computed = _computed(network, model, split, part, self._tensors)
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
        data = Split(features, np.zeros(features.shape[0], np.int64))
        plan, (model,) = self.plan(data), self.rows(model[None], 1)
        found = np.empty((len(data), plan.classes or 1))
        with plan.networks.lend() as network:
            for part in _slices(len(data), plan.rows):
                outputs, _ = _computed(network, model, data, part, self._tensors)
                found[part] = network.loss.scores(outputs).reshape(-1, found.shape[1]).double().numpy()
        return found

    def local_steps(self, rounds: Sequence[LocalRound], data: Split) -> LocalSums:
        """See `Objective.local_steps`; one round a thread, where there are kernels."""
        kernel = self.plan(data).kernel
        if kernel is None or self.dtype != np.float32 or any(each.where.step > 1 for each in rounds):
            return super().local_steps(rounds, data)
        given = [checked(each, self.size, len(data)) for each in rounds]
        return torch_kernel.walk(kernel, given, data, self.l2, self.threads)

    def descended(self, models: FloatArray, data: Split, given: Descent) -> LocalUpdates:
        """See `Objective.local_updates` and `Objective.local_training`; one agent a thread, where there are kernels."""
        if (kernel := self.plan(data).kernel) is None:
            return super().descended(models, data, given)
        models = self.rows(models, len(given.steps))
        return torch_kernel.descend(kernel, models, data, given, self.l2, self.threads)

    def computing(self) -> Computing:
        """See `Objective.computing`; of the first data that gradients were asked for."""
        plan = next(iter(self._plans.values()), None)
        if plan is None:
            return Computing(self.strategy)
        if plan.kernel is not None:
            made = MADE[plan.kernel.run]
            return Computing(plan.strategy, "", made.kernels, made.seconds, plan.kernel.products)
        # Of modules that are no sequence at all nobody expects to be chains.
        expected = isinstance(self._network.module, nn.Sequential) or plan.strategy == "loop"
        return Computing(plan.strategy, plan.unchained if expected else "")

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
        shape = tuple(data.features.shape[1:])
        if shape not in self._plans:
            given = torch.from_numpy(self._given)
            self._plans[shape] = make_plan(
                self._network,
                given,
                shape,
                self.strategy,
                self.memory_mib * 2**20,
                self._steady,
                self.exact,
                self._kernels,
            )
        check_split(data, self._plans[shape].classes)
        self._check_taken(data, self._plans[shape])
        return self._checked.setdefault(data, self._plans[shape])

    def _check_taken(self, data: Split, plan: NetworkPlan) -> None:
        """Raise DataError for examples that the module cannot take; later nobody looks at single ones."""
        if not plan.choosy and not embeddings(self._network.module):
            return
        network = self._network.twin()
        parameters = network.parameters(torch.from_numpy(self._given))
        slices = (slice(start, start + plan.rows) for start in range(0, len(data), plan.rows))
        outputs = (network.outputs(parameters, self._tensors.features(data, part)) for part in slices)
        try:
            with torch.no_grad():
                check_embedded(network.module, outputs)
        except DataError:
            raise
        except Exception as problem:  # whatever others' code does
            raise DataError(
                f"the module fails on some examples of the data ({reason(problem, told=False)}); correct these, or let "
                "forward take them"
            ) from problem


def _reset(layer: nn.Module) -> None:
    for name in ("reset_parameters", "_reset_parameters"):  # the second is torch's own, of attention layers
        if callable(reset := getattr(layer, name, None)):
            reset()
            return


def _check_settings(l2: float, memory_mib: int, strategy: str, threads: int | None) -> None:
    if not 0 <= l2 < float("inf"):
        raise SpecError(f"l2 is a number of at least 0, found {l2!r}")
    if not memory_mib >= 1:
        raise SpecError(f"memory_mib is at least 1, found {memory_mib!r}")
    if strategy not in ("auto", COMPILED, *STRATEGIES):
        raise SpecError(f"strategy is one of auto, {COMPILED}, {', '.join(STRATEGIES)}, found {strategy!r}")
    if threads is not None and not threads >= 1:
        raise SpecError(f"threads is at least 1, or None for one a core, found {threads!r}")
