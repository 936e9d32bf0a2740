"""A worker of any task of pipeline.py: asks for blocks until there are none. DAISY_CONTEXT, which whoever starts it sets, says of which
task, and whom to ask."""

import daisy

import steps

client = daisy.Client()
process = getattr(steps, client.task_id)
while True:
    with client.acquire_block() as block:
        if block is None:
            break
        process(block)
