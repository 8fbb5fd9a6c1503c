"""A model of ingot as a deployment of Ray Serve: OpenAI's chat and completions, streamed or not, on several replicas.

    pip install 'ray[serve]' .                      # in a clone of ingot
    cd deploy && serve run ray_serve:app model=/models/model.gguf replicas=2

Each replica loads the model. A replica accepts as many requests as it computes at once; the others wait in Ray's
router, so they go to another replica if a replica dies. Requests that a dead replica had begun fail.
"""
import json
from typing import Any, AsyncIterator, Dict

import ingot
from fastapi import FastAPI, Request
from openai_answers import Answering, error_of, status_of
from ray import serve
from starlette.responses import JSONResponse, Response, StreamingResponse

api = FastAPI()
MODEL_OPTIONS = {"device": str, "n_threads": int, "n_ctx": int, "n_kv_tokens": int, "kv_type": str, "quantize": str,
                 "chat_template": str, "speculate": str, "draft": str, "tp": int, "pp": int, "gpu_layers": int,
                 "gpu_memory": str}


async def server_sent(answering: Answering) -> AsyncIterator[str]:
    try:
        async for event in answering.events():
            yield f"data: {json.dumps(event)}\n\n"
        yield "data: [DONE]\n\n"
    except ingot.IngotError as error:  # the status has been sent: the stream says so
        yield f"data: {json.dumps(error_of(error))}\n\n"


@serve.deployment(health_check_period_s=2, health_check_timeout_s=10, graceful_shutdown_timeout_s=120)
@serve.ingress(api)
class Ingot:
    """One replica. options: those of ingot.Model.load()."""

    def __init__(self, model: str, name: str, max_seqs: int, options: Dict[str, Any]):
        self.name = name
        self.model = ingot.Model.load(model or None, max_seqs=max_seqs, **options)

    def check_health(self) -> None:
        _ = self.model.n_ctx  # raises an error after the model has been closed: Ray then starts another replica

    @api.get("/v1/models")
    async def models(self) -> Dict[str, Any]:
        entry = {"id": self.name, "object": "model", "created": 0, "owned_by": "ingot", "max_model_len": self.model.n_ctx}
        return {"object": "list", "data": [entry]}

    @api.post("/v1/chat/completions")
    @api.post("/v1/completions")
    async def answer(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            if not isinstance(body, dict):
                raise ingot.InvalidError("the body must be a JSON object")
            answering = await Answering(self.model, self.name, body).begin()
            if body.get("stream"):
                return StreamingResponse(server_sent(answering), media_type="text/event-stream")
            return JSONResponse(await answering.whole())
        except json.JSONDecodeError as error:
            refused: ingot.IngotError = ingot.InvalidError(f"the body is not JSON: {error}")
        except ingot.IngotError as error:
            refused = error
        return JSONResponse(error_of(refused), status_code=status_of(refused))


def app(args: Dict[str, Any]) -> serve.Application:
    """For `serve run`: model, name, replicas, max_seqs, cpus, gpus, and the options in MODEL_OPTIONS. Without a model:
    the demo model."""
    args = dict(args)
    take = lambda name, kind, default: kind(args.pop(name, default))
    model, replicas, max_seqs = take("model", str, ""), take("replicas", int, 1), take("max_seqs", int, 8)
    name = take("name", str, model.rsplit("/", 1)[-1] or "demo")
    actors = {"num_cpus": take("cpus", float, 1), "num_gpus": take("gpus", float, 0)}
    unknown = set(args) - set(MODEL_OPTIONS)
    if unknown:
        raise ValueError(f"there is no argument {sorted(unknown)[0]!r}: use model, name, replicas, max_seqs, cpus, gpus, "
                         + ", ".join(MODEL_OPTIONS))
    options = {key: MODEL_OPTIONS[key](value) for key, value in args.items()}
    bound = Ingot.options(num_replicas=replicas, max_ongoing_requests=max_seqs, ray_actor_options=actors)
    return bound.bind(model, name, max_seqs, options)
