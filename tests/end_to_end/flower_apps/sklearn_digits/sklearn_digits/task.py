"""sklearn_digits: the model, its data and its parameters."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def load_data(partition_id, num_partitions):
    x, y = load_digits(return_X_y=True)
    own = np.arange(partition_id, len(x), num_partitions)
    x, y = x[own] / 16, y[own]
    cut = int(0.8 * len(own))
    return x[:cut], x[cut:], y[:cut], y[cut:]


def get_model(local_epochs):
    return LogisticRegression(max_iter=local_epochs, warm_start=True)


def get_model_params(model):
    return [model.coef_, model.intercept_]


def set_model_params(model, params):
    model.coef_, model.intercept_ = params[0], params[1]
    return model


def set_initial_params(model):
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = np.zeros((10, 64)), np.zeros((10,))
