"""sklearn_digits: a Flower / scikit-learn app."""

from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from sklearn_digits.task import get_model, get_model_params, set_initial_params


def weighted_average(metrics):
    total = sum(count for count, _ in metrics)
    return {"accuracy": sum(count * each["accuracy"] for count, each in metrics) / total}


def server_fn(context):
    model = get_model(context.run_config["local-epochs"])
    set_initial_params(model)
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters(get_model_params(model)),
        evaluate_metrics_aggregation_fn=weighted_average,
    )
    return ServerAppComponents(
        strategy=strategy, config=ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    )


app = ServerApp(server_fn=server_fn)
