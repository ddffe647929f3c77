"""layers: a Flower / PyTorch app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from layers.task import Net, load_data
from layers.task import test as test_fn
from layers.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    trainset, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    train_loss = train_fn(model, trainset, context.run_config["local-epochs"], msg.content["config"]["lr"])
    metrics = {"train_loss": train_loss, "num-examples": len(trainset[0])}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, valset = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    eval_loss, eval_acc = test_fn(model, valset)
    metrics = {"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(valset[0])}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
