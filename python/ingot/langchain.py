"""ingot for LangChain: a chat model and embeddings, in the process. Needs langchain-core: `pip install ingot[langchain]`.

>>> from ingot import Model
>>> from ingot.langchain import ChatIngot
>>> chat = ChatIngot(model=Model.load(), options={"temperature": 0, "max_tokens": 8})
>>> chat.invoke("Tell me a story about a fox.").usage_metadata["output_tokens"]
8
"""
from __future__ import annotations

import json
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Optional, Sequence, Union

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from ._library import InvalidError
from .answers import ChatAnswer, Delta
from .model import Model


def _usage(answer: ChatAnswer) -> UsageMetadata:
    return UsageMetadata(input_tokens=answer.prompt_tokens, output_tokens=answer.output_tokens,
                         total_tokens=answer.prompt_tokens + answer.output_tokens)


def _message(answer: ChatAnswer) -> AIMessage:
    calls = answer.tool_calls
    return AIMessage(
        content=answer.text,
        tool_calls=[tool_call(name=c.name, args=c.arguments, id=c.id) for c in calls if c.arguments is not None],
        invalid_tool_calls=[invalid_tool_call(name=c.name, args=c.raw_arguments, id=c.id, error="no JSON object")
                            for c in calls if c.arguments is None],
        additional_kwargs={"reasoning_content": answer.reasoning} if answer.reasoning else {},
        response_metadata={"finish_reason": answer.finish},
        usage_metadata=_usage(answer))


def _chunk(delta: Delta) -> ChatGenerationChunk:
    calls = [tool_call_chunk(name=c["function"].get("name"), args=c["function"]["arguments"], id=c.get("id"), index=c["index"])
             for c in delta.tool_calls]
    extra = {"reasoning_content": delta.reasoning} if delta.reasoning else {}
    return ChatGenerationChunk(message=AIMessageChunk(content=delta.content, tool_call_chunks=calls, additional_kwargs=extra))


def _last_chunk(answer: ChatAnswer) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(
        content="", response_metadata={"finish_reason": answer.finish}, usage_metadata=_usage(answer)))


class ChatIngot(BaseChatModel):
    """A chat model for LangChain and LangGraph: streams, asyncio, tools and structured output."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Model  #: a loaded model that writes text
    options: Dict[str, Any] = Field(default_factory=dict)  #: of `ingot.Options`, for every answer

    @property
    def _llm_type(self) -> str:
        return "ingot"

    @property
    def _identifying_params(self) -> Dict[str, Any]:
        return {"model": self.model.path, **self.options}

    def bind_tools(self, tools: Sequence[Union[Dict[str, Any], type, Callable[..., Any], BaseTool]], *,
                   tool_choice: Optional[str] = None, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        if tool_choice not in (None, "auto"):
            raise InvalidError(f"tool_choice is {tool_choice!r}: the model chooses, so leave it out, or use with_structured_output")
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def with_structured_output(self, schema: Union[Dict[str, Any], type], *, include_raw: bool = False,
                               **kwargs: Any) -> Runnable[LanguageModelInput, Any]:
        """Answers that follow the schema, a Pydantic class or a JSON Schema, by construction."""
        if include_raw or kwargs:
            raise InvalidError("with_structured_output takes a schema alone here")
        validate = getattr(schema, "model_validate_json", json.loads)
        return self.bind(schema=schema) | (lambda message: validate(message.content))

    def _arguments(self, messages: List[BaseMessage], stop: Optional[List[str]], kwargs: Dict[str, Any]) -> Dict[str, Any]:
        kwargs = {name: value for name, value in kwargs.items() if not name.startswith("ls_")}
        said = convert_to_openai_messages(messages)
        return {**self.options, **({"stop": stop} if stop else {}), **kwargs, "messages": said}

    def _generate(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                  run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> ChatResult:
        answer = self.model.chat(**self._arguments(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=_message(answer))])

    async def _agenerate(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                         run_manager: Optional[AsyncCallbackManagerForLLMRun] = None, **kwargs: Any) -> ChatResult:
        answer = await self.model.achat(**self._arguments(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=_message(answer))])

    def _stream(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        stream = self.model.chat(stream=True, **self._arguments(messages, stop, kwargs))
        for delta in stream:
            chunk = _chunk(delta)
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        yield _last_chunk(stream.answer)

    async def _astream(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                       run_manager: Optional[AsyncCallbackManagerForLLMRun] = None,
                       **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        stream = await self.model.achat(stream=True, **self._arguments(messages, stop, kwargs))
        async for delta in stream:
            chunk = _chunk(delta)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        yield _last_chunk(await stream.answer())


class IngotEmbeddings(Embeddings):
    """Vectors for LangChain. query_prompt and document_prompt are names of the model's prompts, where it has some."""

    def __init__(self, model: Model, query_prompt: Optional[str] = None, document_prompt: Optional[str] = None) -> None:
        self.model, self.query_prompt, self.document_prompt = model, query_prompt, document_prompt

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        vectors: List[List[float]] = self.model.embed(texts, prompt_name=self.document_prompt).tolist()
        return vectors

    def embed_query(self, text: str) -> List[float]:
        vector: List[float] = self.model.embed(text, prompt_name=self.query_prompt).tolist()
        return vector
