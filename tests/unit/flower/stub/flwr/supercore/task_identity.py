"""Who this process is."""


class TaskIdentity:
    task_id = run_id = node_id = None
