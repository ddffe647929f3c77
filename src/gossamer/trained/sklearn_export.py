"""A linear model as a scikit-learn pipeline: from cells of a table, or raw numbers, to classes and probabilities."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np
import sklearn
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from gossamer.data.columns import Column, Columns
from gossamer.errors import ModelError
from gossamer.trained.model import Model


def sklearn_file(model: Model) -> bytes:
    """Content of a file with a pipeline that ``joblib.load`` reads without Gossamer.

    Raises
    ------
    ModelError
        If the model is not linear.
    """
    file = io.BytesIO()
    joblib.dump(pipeline(model), file)
    return file.getvalue()


def pipeline(model: Model) -> Pipeline:
    """The model as a fitted pipeline.

    It takes the declared columns of a table, in their order, with texts as texts and truth values as 0 and 1; without
    declared columns it takes the features as they are in the file, flat.
    """
    if not model.card.objective.linear:
        raise ModelError(
            "scikit-learn has no such networks: linear models alone are exported to it; take --to torch or --to onnx"
        )
    data = model.card.data
    if data.columns is not None:
        if dated := [name for name, column in data.columns.items() if column.kind == "date"]:
            raise ModelError(
                f"scikit-learn has nothing that reads dates, and {dated[0]} has some; take --to torch or --to onnx, "
                "which take days, months and weekdays as numbers"
            )
        scaled = data.scale is None or data.scale.name != "none"
        steps: list[Any] = [_of_columns(data.columns, scaled)]
    else:
        steps = _of_all(model)
    if data.normalise == "unit_norm":
        steps.append(Normalizer())
    made = make_pipeline(*steps, _estimator(model))
    made.gossamer_, made.written_by_ = model.described(), f"scikit-learn {sklearn.__version__}"
    return made


def _of_columns(columns: Columns, scaled: bool) -> ColumnTransformer:
    """A transformer of each column, fitted on two rows that follow from public constants."""
    parts = [(name, _of_column(column, scaled), [place]) for place, (name, column) in enumerate(columns.items())]
    rows = np.array([_ends(column) for column in columns.values()], object).T
    return ColumnTransformer(parts, sparse_threshold=0).fit(rows)


def _of_column(column: Column, scaled: bool) -> Any:
    steps: list[Any] = []
    if column.missing is not None:
        filling = column.missing if column.categories is not None else float(column.missing)
        steps.append(SimpleImputer(strategy="constant", fill_value=filling))
    if column.categories is not None:
        steps.append(OneHotEncoder(categories=[list(column.categories)], sparse_output=False))
    elif scaled and (scaler := _scaler(column)) is not None:
        steps.append(scaler)
    made = make_pipeline(*steps) if steps else "passthrough"
    return make_union(made, MissingIndicator(features="all")) if column.was_empty else made


def _scaler(constants: Any) -> Any:
    if constants.range is not None:
        return MinMaxScaler(feature_range=(-1, 1), clip=True)
    return None if constants.mean is None else StandardScaler()


def _ends(constants: Any) -> Sequence[Any]:
    """Two values by which a scaler is fitted to just these constants."""
    if getattr(constants, "categories", None) is not None:
        return constants.categories[:2]  # type: ignore[no-any-return]
    if constants.range is not None:
        return tuple(constants.range)
    if constants.mean is not None:
        return constants.mean - constants.deviation, constants.mean + constants.deviation
    return 0.0, 1.0


def _of_all(model: Model) -> list[Any]:
    """Scalers of data without columns: the same for all features."""
    data, size = model.card.data, model.objective.features  # type: ignore[attr-defined]
    constant = data.scale if data.scale is not None and data.scale.name == "constant" else None
    if constant is not None:
        return [_scaler(constant).fit(np.repeat(np.array(_ends(constant))[:, None], size, axis=1))]
    if data.divisor != 1:
        # Without a mean, which keeps sparse features sparse; of these two rows the deviation is the divisor.
        ends = np.repeat([[-data.divisor], [data.divisor]], size, axis=1)
        return [StandardScaler(with_mean=False).fit(ends)]
    return []


def _estimator(model: Model) -> Any:
    weight = model["weight"].astype(np.float64)
    bias = model["bias"].astype(np.float64) if "bias" in model else np.zeros(len(weight))
    made: Any
    if model.card.objective.loss == "poisson":
        # Fitted to one count, which says nothing but how many features there are.
        made = TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp)
        made.fit(np.zeros((1, weight.shape[1])), np.ones(1))
        made.regressor_.coef_, made.regressor_.intercept_ = weight[0], float(bias[0])
        return made
    if model.classes is None:
        made = LinearRegression()
        target = model.card.data.target_range
        shift, unit = (0.0, 1.0) if target is None else target.shift_and_unit
        made.coef_, made.intercept_ = weight[0] * unit, float(bias[0]) * unit + shift
        made.n_features_in_ = weight.shape[1]
        return made
    if model.card.objective.loss == "hinge":
        made = LinearSVC()
    else:
        made = LogisticRegression()
        made.multi_class = "auto"  # versions before 1.8 ask for it, and have no probabilities without
        if len(weight) == 2:  # as scikit-learn has two classes: the difference of their scores decides
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    made.classes_, made.n_features_in_ = np.array(model.classes), weight.shape[1]
    made.coef_, made.intercept_, made.n_iter_ = weight, bias, np.zeros(1, np.int32)
    return made
