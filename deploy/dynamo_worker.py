"""A model of ingot as a worker of NVIDIA Dynamo: OpenAI's chat and completions behind Dynamo's frontend and router.

    pip install ai-dynamo .                         # in a clone of ingot
    export DYN_DISCOVERY_BACKEND=file               # one machine; several machines share etcd, the default
    python -m dynamo.frontend --http-port 8000 &
    python deploy/dynamo_worker.py --model /models/model.gguf --name my-model &

Any number of workers may have the same name: the frontend divides the requests among them. The worker takes texts, and
ingot applies the chat template and tokenizes, so a GGUF file is enough. The frontend gets no tokens and no KV events,
so use its routers by load (`--router-mode least-loaded`); for routing by prefixes, docs/server.md has ingot's own way.
"""
import argparse
import asyncio
import signal
from typing import Any, AsyncIterator, Dict

import ingot
from dynamo.llm import ModelInput, ModelType, WorkerType, register_model
from dynamo.llm.exceptions import HttpError, InvalidArgument
from dynamo.runtime import Context, DistributedRuntime, dynamo_worker
from openai_answers import Answering, status_of


class Worker:
    def __init__(self, model: ingot.Model, name: str):
        self.model, self.name = model, name

    async def generate(self, request: Dict[str, Any], context: Context) -> AsyncIterator[Dict[str, Any]]:
        """The events of an answer. The frontend joins them if the client wants no stream."""
        try:
            body = {**request, "stream_options": {"include_usage": True}}
            answering = await Answering(self.model, self.name, body).begin()
            async for event in answering.events():
                if context.is_stopped():  # the client has left
                    answering.stream.close()
                    return
                yield event
        except ingot.InvalidError as error:
            raise InvalidArgument(str(error)) from None
        except ingot.IngotError as error:
            raise HttpError(status_of(error), str(error)) from error


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A model of ingot as a worker of Dynamo.")
    parser.add_argument("--model", help="a GGUF file, a directory, or ORG/REPO[:QUANT]; default: the demo model")
    parser.add_argument("--name", default="ingot", help="the model's name for clients")
    parser.add_argument("--endpoint", default="ingot.worker.generate", help="namespace.component.endpoint in Dynamo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-seqs", type=int, default=8, help="requests computed at once")
    parser.add_argument("--n-ctx", type=int, default=0, help="tokens of one request; 0: the model's")
    parser.add_argument("--n-threads", type=int, default=0)
    return parser.parse_args()


@dynamo_worker()
async def work(runtime: DistributedRuntime, o: argparse.Namespace) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # running answers end first
        asyncio.get_running_loop().add_signal_handler(number, runtime.shutdown)
    model = ingot.Model.load(o.model, device=o.device, max_seqs=o.max_seqs, n_ctx=o.n_ctx, n_threads=o.n_threads)
    endpoint = runtime.endpoint(o.endpoint)
    kinds = ModelType.Chat | ModelType.Completions
    await register_model(ModelInput.Text, kinds, endpoint, o.name, o.name, worker_type=WorkerType.Aggregated,
                         skip_model_assets=True)
    await endpoint.serve_endpoint(Worker(model, o.name).generate, graceful_shutdown=True)


if __name__ == "__main__":
    asyncio.run(work(options()))
