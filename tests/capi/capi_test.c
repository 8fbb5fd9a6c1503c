/* A separate C program that uses the shared library: capi_test MODEL. Exit code 0 if all checks pass. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingot/ingot.h"

#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, ingot_last_error()); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

static const char* model_path;

typedef struct {
  char text[4096];
  size_t n_bytes;
  int n_tokens, n_finished;
  volatile int done;
  ingot_model* model;
  ingot_status free_status;
} heard;

static void hear(const ingot_event* event, void* user) {
  heard* h = user;
  if (h->n_bytes + event->n_bytes < sizeof(h->text)) {
    memcpy(h->text + h->n_bytes, event->text, event->n_bytes);
    h->n_bytes += event->n_bytes;
  }
  if (event->kind == INGOT_EVENT_TOKEN) ++h->n_tokens;
  if (event->kind != INGOT_EVENT_FINISH) return;
  h->free_status = ingot_free(h->model);
  ++h->n_finished;
  __atomic_store_n(&h->done, 1, __ATOMIC_RELEASE);
}

static ingot_event poll_to_end(ingot_request* request, heard* h) {
  ingot_event event;
  while (1) {
    EXPECT(ingot_poll(request, -1, &event) == INGOT_OK);
    if (h->n_bytes + event.n_bytes < sizeof(h->text)) memcpy(h->text + h->n_bytes, event.text, event.n_bytes), h->n_bytes += event.n_bytes;
    if (event.kind == INGOT_EVENT_FINISH) break;
    ++h->n_tokens;
  }
  EXPECT(ingot_poll(request, -1, &event) == INGOT_END);
  return event;
}

static void test_errors(ingot_model* model) {
  ingot_model* none = (ingot_model*)1;
  EXPECT(ingot_load("/nowhere/at/all.gguf", NULL, &none) == INGOT_INVALID && none == NULL);
  EXPECT(strstr(ingot_last_error(), "/nowhere/at/all.gguf") != NULL);
  EXPECT(ingot_load(NULL, NULL, &none) == INGOT_INVALID && ingot_load("x", NULL, NULL) == INGOT_INVALID);
  ingot_model_options options;
  ingot_model_options_init(&options);
  options.device = "abacus";
  EXPECT(ingot_load(model_path, &options, &none) == INGOT_INVALID && strstr(ingot_last_error(), "abacus") != NULL);
  memset(&options, 0, sizeof(options));
  EXPECT(ingot_load(model_path, &options, &none) == INGOT_INVALID && strstr(ingot_last_error(), "struct_size") != NULL);

  ingot_request* request = (ingot_request*)1;
  int32_t token = -5;
  EXPECT(ingot_submit(model, &token, 1, NULL, NULL, NULL, &request) == INGOT_INVALID && request == NULL);
  EXPECT(strstr(ingot_last_error(), "-5") != NULL);
  EXPECT(ingot_submit(model, NULL, 0, NULL, NULL, NULL, &request) == INGOT_INVALID);
  EXPECT(ingot_submit(model, NULL, 3, NULL, NULL, NULL, &request) == INGOT_INVALID);
  ingot_request_options asked;
  ingot_request_options_init(&asked);
  asked.top_p = 7;
  token = 1;
  EXPECT(ingot_submit(model, &token, 1, &asked, NULL, NULL, &request) == INGOT_INVALID && strstr(ingot_last_error(), "top_p") != NULL);
  size_t n = 0;
  EXPECT(ingot_tokenize_chat(model, "not json", NULL, 0, &n) == INGOT_INVALID);
  EXPECT(ingot_tokenize_chat(model, "{}", NULL, 0, &n) == INGOT_INVALID);
  ingot_event event;
  EXPECT(ingot_poll(NULL, 0, &event) == INGOT_INVALID);
  ingot_cancel(NULL);
  ingot_request_free(NULL);
  EXPECT(ingot_free(NULL) == INGOT_OK && ingot_n_ctx(NULL) == 0);
  EXPECT(strcmp(ingot_status_name(INGOT_FULL), "INGOT_FULL") == 0 && strlen(ingot_version()) > 0);
}

/* Runs a request to its end. Collects its tokens and its text. */
static ingot_event answer_of(ingot_model* model, const int32_t* prompt, size_t n, const ingot_request_options* asked, int32_t* tokens,
                             size_t* n_tokens, heard* h) {
  ingot_request* request = NULL;
  ingot_event event;
  EXPECT(ingot_submit(model, prompt, n, asked, NULL, NULL, &request) == INGOT_OK);
  *n_tokens = 0;
  while (1) {
    EXPECT(ingot_poll(request, -1, &event) == INGOT_OK && h->n_bytes + event.n_bytes < sizeof(h->text));
    memcpy(h->text + h->n_bytes, event.text, event.n_bytes), h->n_bytes += event.n_bytes;
    if (event.kind == INGOT_EVENT_FINISH) break;
    tokens[(*n_tokens)++] = event.token;
  }
  event.text = NULL;
  ingot_request_free(request);
  return event;
}

static void test_constraints(ingot_model* model, const int32_t* prompt, size_t n) {
  int32_t tokens[256];
  size_t n_tokens = 0;
  ingot_request_options asked;
  ingot_request_options_init(&asked);
  EXPECT(asked.json_schema == NULL && asked.regex == NULL && asked.grammar == NULL);
  asked.temperature = 1;
  asked.max_tokens = 60;
  for (asked.seed = 0; asked.seed < 4; ++asked.seed) {
    heard h = {0};
    asked.regex = "(yes|no), [0-9]{3}";
    ingot_event end = answer_of(model, prompt, n, &asked, tokens, &n_tokens, &h);
    EXPECT(end.finish == INGOT_FINISH_STOP && end.output_tokens >= (int)n_tokens);
    const size_t word = h.text[0] == 'y' ? 3 : 2;
    EXPECT(h.n_bytes == word + 5 && memcmp(h.text, word == 3 ? "yes, " : "no, ", word + 2) == 0);
    for (size_t i = word + 2; i < h.n_bytes; ++i) EXPECT(h.text[i] >= '0' && h.text[i] <= '9');
    asked.regex = NULL;

    heard g = {0};
    asked.grammar = "root ::= \"<\" [ab] \">\"";
    end = answer_of(model, prompt, n, &asked, tokens, &n_tokens, &g);
    EXPECT(end.finish == INGOT_FINISH_STOP && g.n_bytes == 3 && g.text[0] == '<' && g.text[2] == '>');
    EXPECT(g.text[1] == 'a' || g.text[1] == 'b');
    asked.grammar = NULL;

    heard s = {0};
    asked.json_schema = "{\"type\": \"object\", \"properties\": {\"animal\": {\"enum\": [\"fox\", \"owl\"]}}, "
                        "\"required\": [\"animal\"], \"additionalProperties\": false}";
    end = answer_of(model, prompt, n, &asked, tokens, &n_tokens, &s);
    EXPECT(end.finish == INGOT_FINISH_STOP && s.text[0] == '{' && s.text[s.n_bytes - 1] == '}');
    EXPECT(strstr(s.text, "\"animal\"") != NULL && (strstr(s.text, "\"fox\"") != NULL || strstr(s.text, "\"owl\"") != NULL));
    asked.json_schema = NULL;
  }

  /* Invalid requests, and a caller whose older header lacks these fields. */
  ingot_request* request = NULL;
  asked.json_schema = "{\"type\": 7}";
  EXPECT(ingot_submit(model, prompt, n, &asked, NULL, NULL, &request) == INGOT_INVALID && strstr(ingot_last_error(), "type") != NULL);
  asked.json_schema = "{}";
  asked.regex = "a";
  EXPECT(ingot_submit(model, prompt, n, &asked, NULL, NULL, &request) == INGOT_INVALID && strstr(ingot_last_error(), "one of") != NULL);
  asked.json_schema = NULL;
  asked.regex = "(";
  EXPECT(ingot_submit(model, prompt, n, &asked, NULL, NULL, &request) == INGOT_INVALID && request == NULL);
  asked.struct_size = offsetof(ingot_request_options, json_schema);
  asked.max_tokens = 4;
  asked.ignore_eos = 1;
  heard old = {0};
  EXPECT(answer_of(model, prompt, n, &asked, tokens, &n_tokens, &old).finish == INGOT_FINISH_LENGTH && n_tokens == 4);
}

/* The template receives the tools, and a tool call in the answer is parsed. */
static void test_tools(ingot_model* model) {
  const char* messages = "[{\"role\": \"user\", \"content\": \"How warm is it in Oslo?\"}]";
  const char* tools = "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"how warm it is\", "
                      "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]";
  int32_t plain[256], prompt[256], answer[256];
  size_t n_plain = 0, n = 0, n_answer = 0, n_bytes = 0;
  char text[2048] = {0}, json[1024] = {0};
  ingot_chat_options options;
  ingot_chat_options_init(&options);
  EXPECT(ingot_tokenize_chat_with(model, messages, &options, plain, 256, &n_plain) == INGOT_OK);
  options.tools = tools;
  EXPECT(ingot_tokenize_chat_with(model, messages, &options, prompt, 256, &n) == INGOT_OK && n > n_plain && n <= 256);
  EXPECT(ingot_detokenize(model, prompt, n, text, sizeof(text) - 1, &n_bytes) == INGOT_OK && strstr(text, "weather") != NULL);

  const char* said = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
  EXPECT(ingot_tokenize(model, said, strlen(said), 0, 1, answer, 256, &n_answer) == INGOT_OK && n_answer <= 256);
  EXPECT(ingot_read_answer(model, prompt, n, tools, answer, n_answer, json, sizeof(json) - 1, &n_bytes) == INGOT_OK);
  EXPECT(strstr(json, "\"content\":\"Let me see.\"") != NULL && strstr(json, "\"name\":\"weather\"") != NULL);
  EXPECT(strstr(json, "\"arguments\":\"{\\\"city\\\": \\\"Oslo\\\"}\"") != NULL && strstr(json, "reasoning") == NULL);
  /* Without tools, an answer has no calls. The caller can query the size first. */
  memset(json, 0, sizeof(json));
  EXPECT(ingot_read_answer(model, prompt, n, NULL, answer, n_answer, NULL, 0, &n_bytes) == INGOT_OK && n_bytes < sizeof(json));
  EXPECT(ingot_read_answer(model, prompt, n, NULL, answer, n_answer, json, n_bytes, &n_bytes) == INGOT_OK);
  EXPECT(strstr(json, "tool_calls") == NULL && strstr(json, "<tool_call>") != NULL);
  EXPECT(ingot_read_answer(model, prompt, n, "{}", answer, n_answer, json, sizeof(json), &n_bytes) == INGOT_INVALID);
  EXPECT(ingot_read_answer(model, prompt, n, "[", answer, n_answer, json, sizeof(json), &n_bytes) == INGOT_INVALID);
  EXPECT(ingot_read_answer(NULL, prompt, n, tools, answer, n_answer, json, sizeof(json), &n_bytes) == INGOT_INVALID);
  answer[0] = -1;
  EXPECT(ingot_read_answer(model, prompt, n, tools, answer, n_answer, json, sizeof(json), &n_bytes) == INGOT_INVALID);
  options.variables = "[]";
  EXPECT(ingot_tokenize_chat_with(model, messages, &options, prompt, 256, &n) == INGOT_INVALID);
}

static double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

/* A text-generating model gives embeddings too: the mean of its last hidden states. */
static void test_embeddings(void) {
  ingot_embedder_options options;
  ingot_embedder* embedder = (ingot_embedder*)1;
  EXPECT(ingot_embedder_load("/nowhere/at/all.gguf", NULL, &embedder) == INGOT_INVALID && embedder == NULL);
  ingot_embedder_options_init(&options);
  options.n_threads = 2;
  options.pooling = "mean";
  EXPECT(ingot_embedder_load(model_path, &options, &embedder) == INGOT_OK);
  const int dim = ingot_embedder_dim(embedder);
  EXPECT(dim > 0 && ingot_embedder_dim(NULL) == 0);
  const char* texts[3] = {"A fox sleeps in the snow.", "What is your name?", "A fox sleeps in the snow. And so on"};
  const size_t lengths[3] = {25, 18, 25};
  float* vectors = malloc(sizeof(float) * 3 * (size_t)dim);
  EXPECT(ingot_embed(embedder, texts, lengths, 3, 0, vectors, 3 * (size_t)dim) == INGOT_OK);
  EXPECT(dot(vectors, vectors, dim) > 0.9999 && dot(vectors, vectors, dim) < 1.0001);
  EXPECT(dot(vectors, vectors + dim, dim) < 0.999 && dot(vectors, vectors + 2 * dim, dim) > 0.9999);
  EXPECT(ingot_embed(embedder, texts, NULL, 3, 0, vectors, 3 * (size_t)dim - 1) == INGOT_INVALID);
  EXPECT(ingot_embed(NULL, texts, NULL, 3, 0, vectors, 3 * (size_t)dim) == INGOT_INVALID);
  free(vectors);
  ingot_embedder_free(embedder);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  model_path = argv[1];
  ingot_model_options options;
  ingot_model_options_init(&options);
  options.n_ctx = 256;
  options.n_threads = 2;
  ingot_model* model = NULL;
  EXPECT(ingot_load(argv[1], &options, &model) == INGOT_OK && model != NULL);
  EXPECT(ingot_n_ctx(model) == 256 && ingot_n_vocab(model) > 100);
  test_errors(model);

  /* Text to tokens and back. Queries the size first. */
  const char* text = "The quick brown fox";
  int32_t tokens[256];
  size_t n = 0, n_bytes = 0, again = 0;
  EXPECT(ingot_tokenize(model, text, strlen(text), 0, 0, NULL, 0, &n) == INGOT_OK && n > 0 && n < 256);
  EXPECT(ingot_tokenize(model, text, strlen(text), 0, 0, tokens, 256, &again) == INGOT_OK && again == n);
  char back[256] = {0};
  EXPECT(ingot_detokenize(model, tokens, n, back, sizeof(back), &n_bytes) == INGOT_OK);
  EXPECT(n_bytes == strlen(text) && memcmp(back, text, n_bytes) == 0);
  const char* messages = "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]";
  EXPECT(ingot_tokenize_chat(model, messages, tokens, 256, &n) == INGOT_OK && n > 5 && n < 200);

  /* poll and callback give the same greedy answer. The second prompt is cached. */
  ingot_request_options asked;
  ingot_request_options_init(&asked);
  asked.temperature = 0;
  asked.max_tokens = 24;
  asked.logprobs = 1;
  ingot_request* request = NULL;
  heard polled = {0}, called = {0};
  EXPECT(ingot_submit(model, tokens, n, &asked, NULL, NULL, &request) == INGOT_OK);
  ingot_event event;
  EXPECT(ingot_poll(request, 0, &event) != INGOT_INVALID);
  ingot_request_free(request);
  EXPECT(ingot_submit(model, tokens, n, &asked, NULL, NULL, &request) == INGOT_OK);
  poll_to_end(request, &polled);
  ingot_request_free(request);
  EXPECT(polled.n_tokens > 0 && polled.n_bytes > 0);
  called.model = model;
  EXPECT(ingot_submit(model, tokens, n, &asked, hear, &called, &request) == INGOT_OK);
  while (!__atomic_load_n(&called.done, __ATOMIC_ACQUIRE)) {
  }
  EXPECT(called.n_finished == 1 && called.free_status == INGOT_INVALID);
  EXPECT(called.n_tokens == polled.n_tokens && called.n_bytes == polled.n_bytes && memcmp(called.text, polled.text, called.n_bytes) == 0);
  EXPECT(ingot_poll(request, 0, &event) == INGOT_END);
  ingot_request_free(request);

  /* A finish event has statistics. Cancelled requests finish too, and so do requests of a freed model. */
  asked.max_tokens = 1;
  EXPECT(ingot_submit(model, tokens, n, &asked, NULL, NULL, &request) == INGOT_OK);
  do {
    EXPECT(ingot_poll(request, -1, &event) == INGOT_OK);
  } while (event.kind != INGOT_EVENT_FINISH);
  EXPECT(event.finish == INGOT_FINISH_LENGTH && event.prompt_tokens == (int)n && event.output_tokens == 1);
  EXPECT(event.cached_tokens >= ((int)n - 1) / 16 * 16 && event.cached_tokens < (int)n);
  ingot_request_free(request);
  asked.max_tokens = -1;
  asked.ignore_eos = 1;
  ingot_request* left = NULL;
  EXPECT(ingot_submit(model, tokens, n, &asked, NULL, NULL, &request) == INGOT_OK);
  EXPECT(ingot_submit(model, tokens, n, &asked, NULL, NULL, &left) == INGOT_OK);
  EXPECT(ingot_poll(request, -1, &event) == INGOT_OK && event.kind == INGOT_EVENT_TOKEN && event.logprob < 0);
  ingot_cancel(request);
  do {
    EXPECT(ingot_poll(request, -1, &event) == INGOT_OK);
  } while (event.kind != INGOT_EVENT_FINISH);
  EXPECT(event.finish == INGOT_FINISH_CANCELLED || event.finish == INGOT_FINISH_LENGTH);
  ingot_request_free(request);
  test_embeddings();
  test_constraints(model, tokens, n);
  test_tools(model);
  EXPECT(ingot_free(model) == INGOT_OK);
  do {
    EXPECT(ingot_poll(left, -1, &event) == INGOT_OK);
  } while (event.kind != INGOT_EVENT_FINISH);
  ingot_request_free(left);
  printf("%.*s\n", (int)polled.n_bytes, polled.text);
  return 0;
}
