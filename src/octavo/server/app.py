"""The FastAPI app: routes, middleware, lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.config.server import ServerConfig, object_of, words_of
from octavo.dialogue.dialect import choose_dialect
from octavo.server import admin, control
from octavo.server.access.usage import open_usage
from octavo.server.anthropic.body import CountTokensBody, MessagesBody
from octavo.server.anthropic.route import count_tokens, create_message
from octavo.server.api_keys import read_api_keys
from octavo.server.body import Body
from octavo.server.body_budget import BodyBudget
from octavo.server.context import ServerContext
from octavo.server.errors import install_handlers
from octavo.server.middleware.access_log import AccessLogMiddleware
from octavo.server.middleware.auth import PUBLIC_PATHS, AuthMiddleware
from octavo.server.middleware.drain import DrainMiddleware
from octavo.server.middleware.limits import BodyLimitMiddleware
from octavo.server.middleware.paths import PathMiddleware
from octavo.server.middleware.quota import LIMIT_HEADERS, QuotaMiddleware
from octavo.server.middleware.request_id import RequestIdMiddleware
from octavo.server.ollama.models import closed
from octavo.server.ollama.routes import BODY_ROUTES, CLOSED_ROUTES, READ_ROUTES
from octavo.server.openai.chat import ChatBody, create_chat_completion
from octavo.server.openai.completions import CompletionBody, create_completion
from octavo.server.openai.embeddings import EmbeddingBody, create_embeddings
from octavo.server.openai.models import get_model, list_models
from octavo.server.openai.render import render_chat_completion, render_completion
from octavo.server.openai.rerank import RerankBody, rerank
from octavo.server.openai.score import ScoreBody, score
from octavo.server.openai.tokenize import DetokenizeBody, TokenizeBody, detokenize, tokenize, tokenizer_info
from octavo.server.openapi import MODEL_ID_PARAMETER, install_schema, request_body
from octavo.server.responses.body import ResponsesBody
from octavo.server.responses.route import count_input_tokens, create_response
from octavo.server.service.engine_face import Engine
from octavo.server.service.inflight import Inflight
from octavo.server.service.service import Service
from octavo.text.content_format import CONTENT_FORMATS

Handler = Callable[[Request], Awaitable[Response]]


def create_app(engine: Engine, config: ServerConfig, *, model_names: Sequence[str]) -> FastAPI:
    """The app that serves engine under model_names; answers bear the first.

    It shuts the engine down when its lifespan ends.

    The context is at `app.state.context`; `context.inflight` is the door that a drain closes.
    """
    admin.check_prefix(config.metrics_prefix)
    inflight, api_keys = Inflight(), read_api_keys(config)
    usage = open_usage(config)
    service = make_service(engine, config, model_names)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await app.state.context.service.engine.shutdown()
        if usage is not None:
            usage.close()

    app = FastAPI(
        title="octavo",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None if config.disable_fastapi_docs else "/openapi.json",
    )
    app.state.context = ServerContext(
        service=service,
        keys=api_keys,
        usage=usage,
        config=config,
        inflight=inflight,
        bodies=BodyBudget(config.max_body_size),
    )
    _add_routes(app, config)
    install_handlers(app)
    install_schema(app)
    _add_middleware(app, app.state.context)
    return app


def make_service(engine: Engine, config: ServerConfig, model_names: Sequence[str]) -> Service:
    """The service that answers for engine under model_names. Raises ConfigError for settings that do not fit its model."""
    return Service(
        engine=engine,
        model_names=tuple(model_names),
        trusts_request_templates=config.trust_request_chat_template,
        content_format=CONTENT_FORMATS[config.chat_template_content_format],
        template_kwargs=object_of(config.default_chat_template_kwargs, "default_chat_template_kwargs"),
        response_role=config.response_role,
        system_fingerprint=f"octavo-{__version__}-{engine.weights_version[:12]}",
        dialect=choose_dialect(
            engine.chat_template.sources,
            knows_tools=engine.chat_template.knows_tools,
            tool_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
        ),
    )


def _add_routes(app: FastAPI, config: ServerConfig) -> None:
    def get(path: str, handler: Handler) -> None:
        app.add_api_route(path, handler, methods=["GET"], response_model=None)

    def post(path: str, handler: Handler, body: type[Body]) -> None:
        app.add_api_route(path, handler, methods=["POST"], response_model=None, openapi_extra=request_body(body))

    post("/v1/completions", create_completion, CompletionBody)
    post("/v1/chat/completions", create_chat_completion, ChatBody)
    post("/v1/embeddings", create_embeddings, EmbeddingBody)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        post(path, rerank, RerankBody)
    for path in ("/score", "/v1/score"):
        post(path, score, ScoreBody)
    post("/v1/chat/completions/render", render_chat_completion, ChatBody)
    post("/v1/completions/render", render_completion, CompletionBody)
    post("/v1/responses", create_response, ResponsesBody)
    post("/v1/responses/input_tokens", count_input_tokens, ResponsesBody)
    post("/v1/messages", create_message, MessagesBody)
    post("/v1/messages/count_tokens", count_tokens, CountTokensBody)
    get("/v1/models", list_models)
    app.add_api_route(
        "/v1/models/{model_id:path}", get_model, methods=["GET"], response_model=None, openapi_extra=MODEL_ID_PARAMETER
    )
    post("/tokenize", tokenize, TokenizeBody)
    post("/detokenize", detokenize, DetokenizeBody)
    get("/health", admin.health)
    get("/health/detail", admin.health_detail)
    get("/ready", admin.ready)
    get("/metrics", admin.metrics)
    get("/load", admin.load)
    get("/version", admin.version)
    if config.enable_tokenizer_info_endpoint:
        get("/tokenizer_info", tokenizer_info)
    for path, handler in READ_ROUTES:
        get(path, handler)
    for path, handler, body in BODY_ROUTES:
        post(path, handler, body)
    for method, path in CLOSED_ROUTES:
        app.add_api_route(path, closed, methods=[method], response_model=None, operation_id=f"closed{path.replace('/', '_')}")
    get("/admin/config", control.config)
    get("/admin/memory", control.memory)
    post("/admin/reconfigure", control.reconfigure, control.ReconfigureBody)
    post("/reload", control.reload_model, control.ReloadBody)


def _add_middleware(app: FastAPI, context: ServerContext) -> None:
    """Added last means run first: id, log, pages of other origins, path, key, drain, quota, size."""
    config = context.config
    app.add_middleware(BodyLimitMiddleware, max_body_size=config.max_body_size)
    if context.usage is not None:
        app.add_middleware(QuotaMiddleware, context=context, usage=context.usage)
    app.add_middleware(DrainMiddleware, context=context)
    app.add_middleware(
        AuthMiddleware,
        api_keys=context.keys,
        admin_api_key=config.admin_api_key,
        open_paths=PUBLIC_PATHS | ({"/metrics"} if config.metrics_without_key else set()),
    )
    app.add_middleware(PathMiddleware, root_path=config.root_path)
    origins = words_of(config.allowed_origins, "allowed_origins")
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=words_of(config.allowed_methods, "allowed_methods"),
            allow_headers=words_of(config.allowed_headers, "allowed_headers"),
            allow_credentials=config.allow_credentials,
            expose_headers=("x-request-id", "retry-after", *LIMIT_HEADERS),
        )
    if not config.disable_log_requests:
        app.add_middleware(AccessLogMiddleware)
    app.add_middleware(RequestIdMiddleware)
