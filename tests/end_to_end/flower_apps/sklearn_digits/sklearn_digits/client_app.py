"""sklearn_digits: a Flower / scikit-learn app."""

import warnings

from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from sklearn_digits.task import get_model, get_model_params, load_data, set_initial_params, set_model_params


class FlowerClient(NumPyClient):
    def __init__(self, model, x_train, x_test, y_train, y_test):
        self.model = model
        self.x_train, self.x_test, self.y_train, self.y_test = x_train, x_test, y_train, y_test

    def fit(self, parameters, config):
        set_model_params(self.model, parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model.fit(self.x_train, self.y_train)
        return get_model_params(self.model), len(self.x_train), {}

    def evaluate(self, parameters, config):
        set_model_params(self.model, parameters)
        loss = log_loss(self.y_test, self.model.predict_proba(self.x_test), labels=range(10))
        return loss, len(self.x_test), {"accuracy": self.model.score(self.x_test, self.y_test)}


def client_fn(context):
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model = get_model(context.run_config["local-epochs"])
    set_initial_params(model)
    return FlowerClient(model, *data).to_client()


app = ClientApp(client_fn=client_fn)
