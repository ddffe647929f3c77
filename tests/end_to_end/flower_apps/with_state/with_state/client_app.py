"""with_state: a Flower / PyTorch app whose clients keep their last layer in their state."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from with_state.task import Net, body, load_data
from with_state.task import test as test_fn
from with_state.task import train as train_fn

app = ClientApp()


def restored(msg, context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict(), strict=False)
    if "head" in context.state:
        model.load_state_dict(context.state["head"].to_torch_state_dict(), strict=False)
    return model


@app.train()
def train(msg: Message, context: Context):
    model = restored(msg, context)
    trainset, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    train_fn(model, trainset, context.run_config["local-epochs"], msg.content["config"]["lr"])
    context.state["head"] = ArrayRecord({name: own for name, own in model.state_dict().items() if "fc2" in name})
    content = {"arrays": ArrayRecord(body(model)), "metrics": MetricRecord({"num-examples": len(trainset[0])})}
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = restored(msg, context)
    _, valset = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    eval_loss, eval_acc = test_fn(model, valset)
    metrics = {"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(valset[0])}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
