/* ingot's C API: load a model, submit requests, read their events; from any language that can call C.
 *
 * Every function that can fail returns an ingot_status; the message of the last failure on the calling thread is in
 * ingot_last_error(). Strings are UTF-8. A model and its requests may be used from any number of threads, but one
 * request may be polled by only one thread at a time. No C++ exception leaves a function. The library writes nothing
 * to standard output or standard error, except one line when it aborts, which is a fault of the library. Messages
 * other than errors go to the callback of ingot_set_log.
 *
 * Model files stay mapped in memory until their model is freed. Do not write to a mapped file or shorten it: writing
 * changes the model's numbers, and a thread that reads a removed page gets SIGBUS. The library handles no signals. By
 * default SIGBUS ends the process; your own handler must end the process too, because the read cannot be completed. To
 * replace a model, write a new file and rename it over the old name; the mapping keeps the old file.
 *
 * Structs that you pass begin with their size. Call the struct's ..._init function first; from another language than C,
 * ..._init_sized with the size of your struct. So a program keeps working with a newer library, whose structs may have
 * more fields at their ends; and an older library refuses fields that it does not know, if they are set. */
#ifndef INGOT_INGOT_H
#define INGOT_INGOT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INGOT_API __attribute__((visibility("default")))
#else
#define INGOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ingot_status {
  INGOT_OK = 0,
  INGOT_INVALID = 1,  /* invalid argument or model file, or a request that can never run: the message says why */
  INGOT_FULL = 2,     /* the queue is full: try again later */
  INGOT_MEMORY = 3,   /* out of memory */
  INGOT_TIMEOUT = 4,  /* ingot_poll: no event in the time given */
  INGOT_END = 5,      /* ingot_poll: everything has been read */
  INGOT_INTERNAL = 6, /* a fault of the library */
} ingot_status;

INGOT_API const char* ingot_version(void);             /* "0.1.0" */
INGOT_API const char* ingot_last_error(void);          /* of this thread, valid until its next failure; "" at first */
INGOT_API const char* ingot_status_name(ingot_status); /* "INGOT_OK" */

/* ---- log ---- */

typedef enum ingot_log_level {
  INGOT_LOG_DEBUG = 0,
  INGOT_LOG_INFO = 1, /* what was loaded, and how long it took */
  INGOT_LOG_WARN = 2, /* the call succeeds, but check: an unused tensor, for example, or an invalid template */
} ingot_log_level;

/* text is zero-terminated and valid until the callback returns. The callback is called from any thread, never by two
 * threads at a time, and must not call the library. */
typedef void (*ingot_log_callback)(ingot_log_level level, const char* text, void* user);

/* For the whole process: messages of level `least` and above go to the callback. NULL, the initial value, drops all
 * messages. After the return, the previous callback is not called any more. */
INGOT_API void ingot_set_log(ingot_log_callback callback, ingot_log_level least, void* user);

/* ---- models ---- */

typedef struct ingot_model ingot_model;

typedef struct ingot_model_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  int n_ctx;            /* tokens of one request, prompt and output together; 0: the model's, or what fits in memory */
  int max_seqs;         /* requests computed at once; 8 */
  int max_batch_tokens; /* in one step; 0: 512 on the CPU, up to 2048 on a GPU */
  int n_kv_tokens;      /* size of the KV cache; 0: n_ctx for each request, or what fits in memory */
  int max_queue;        /* requests that wait before INGOT_FULL; 0: any number */
  int deterministic;    /* 1: batch-invariant: other requests do not change a request's tokens */
  const char* kv_type;  /* of the KV cache: "f16", "bf16", "f32", "fp8", "q8_0" or "q4_0" (GPU); NULL: "f16" */
  /* How tokens are guessed, so that a step may give several; the text is the same: "mtp" (the model's own layer for
   * multi-token prediction), "draft" (the model `draft`), "eagle3" (the head `draft`), "ngram" (what followed the same
   * words before), "auto" (by `draft` if given, else "mtp" if the model has it, else "ngram") or "off"; NULL: "off". */
  const char* speculate;
  const char* draft; /* path of a small model with the same tokens, or of an EAGLE-3 head; NULL: none */
} ingot_model_options;

INGOT_API void ingot_model_options_init_sized(ingot_model_options* options, size_t size);
static inline void ingot_model_options_init(ingot_model_options* options) {
  ingot_model_options_init_sized(options, sizeof(*options));
}

/* path: a GGUF file, or a Hugging Face or MLX directory. options may be NULL. Names on the Hugging Face Hub are not
 * accepted: `ingot pull ORG/REPO` downloads a model and prints the path to pass here. */
INGOT_API ingot_status ingot_load(const char* path, const ingot_model_options* options, ingot_model** model);
/* Cancels the model's requests; they can still be polled to their end, and must still be freed. Returns INGOT_INVALID
 * if called from a callback. */
INGOT_API ingot_status ingot_free(ingot_model* model);

INGOT_API int ingot_n_ctx(const ingot_model* model);
INGOT_API int ingot_n_vocab(const ingot_model* model);

typedef enum ingot_model_kind {
  INGOT_KIND_TEXT = 0,     /* writes text: ingot_load */
  INGOT_KIND_EMBEDDER = 1, /* makes vectors of texts: ingot_embedder_load and ingot_embed */
  INGOT_KIND_RERANKER = 2, /* scores documents for a query: ingot_embedder_load and ingot_rerank */
} ingot_model_kind;

/* What the model at `path` is for. Reads the files' headers, not the weights. */
INGOT_API ingot_status ingot_kind_of(const char* path, ingot_model_kind* kind);

/* ---- text ---- */

/* Writes at most capacity tokens to tokens [capacity] and sets *n to the number of tokens that the text has; capacity 0
 * only counts. add_special: adds BOS and similar tokens that the model needs. parse_special: text such as <|im_end|>
 * becomes control tokens. */
INGOT_API ingot_status ingot_tokenize(const ingot_model* model, const char* text, size_t n_bytes, int add_special,
                                      int parse_special, int32_t* tokens, size_t capacity, size_t* n);
/* As ingot_tokenize, for messages that the model's chat template renders: a JSON array of {"role": ..., "content":
 * ...}. */
INGOT_API ingot_status ingot_tokenize_chat(const ingot_model* model, const char* messages, int32_t* tokens,
                                           size_t capacity, size_t* n);

typedef struct ingot_chat_options {
  size_t struct_size;
  const char* tools;     /* a JSON array of {"type": "function", "function": {"name": ..., "description": ...,
                            "parameters": a JSON Schema}}: the model is shown them; NULL: none */
  const char* variables; /* a JSON object: more for the template, as {"enable_thinking": false}; NULL: nothing */
} ingot_chat_options;

INGOT_API void ingot_chat_options_init_sized(ingot_chat_options* options, size_t size);
static inline void ingot_chat_options_init(ingot_chat_options* options) {
  ingot_chat_options_init_sized(options, sizeof(*options));
}

/* The same with options, which may be NULL. Assistant's messages may have "tool_calls", as ingot_read_answer writes
 * them, and a tool's result is {"role": "tool", "tool_call_id": ..., "content": ...}. */
INGOT_API ingot_status ingot_tokenize_chat_with(const ingot_model* model, const char* messages,
                                                const ingot_chat_options* options, int32_t* tokens, size_t capacity,
                                                size_t* n);

/* What an answer says, as a message in JSON that can be the next one of `messages`: {"role": "assistant", "content":
 * ..., "reasoning_content": ..., "tool_calls": [{"id": ..., "type": "function", "function": {"name": ...,
 * "arguments": JSON as a text}}]}. The last two are there only where the model reasoned or called. prompt: the tokens
 * that were submitted, which may have begun the reasoning. tools: as in ingot_chat_options; NULL: no calls are looked
 * for, and they stay in the content. tokens: those of the request's events. An answer that is not over can be read too.
 * Writes at most capacity bytes, without a zero at the end, and says in *n_bytes how many there are. */
INGOT_API ingot_status ingot_read_answer(const ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                         const char* tools, const int32_t* tokens, size_t n, char* json,
                                         size_t capacity, size_t* n_bytes);

/* The same while the answer comes: what new tokens add to the message. */
typedef struct ingot_answer ingot_answer;

/* prompt and tools: as in ingot_read_answer. Free the answer with ingot_answer_free. */
INGOT_API ingot_status ingot_answer_begin(const ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                          const char* tools, ingot_answer** answer);
/* The next tokens [n] of the answer; n = 0 ends it, and must be the last call. *json, which is valid until the answer's
 * next call, is a change in OpenAI's form: {"content": ..., "reasoning_content": ..., "tool_calls": [{"index": ...,
 * "id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}]}. A change has only the members that
 * grow. A call has its id, type and name once, at its beginning; its arguments are to be joined. */
INGOT_API ingot_status ingot_answer_feed(ingot_answer* answer, const int32_t* tokens, size_t n, const char** json,
                                         size_t* n_bytes);
INGOT_API void ingot_answer_free(ingot_answer* answer); /* NULL is allowed */

/* Writes the text of tokens [n]: at most capacity bytes, not zero-terminated. Sets *n_bytes to the text's length. */
INGOT_API ingot_status ingot_detokenize(const ingot_model* model, const int32_t* tokens, size_t n, char* text,
                                        size_t capacity, size_t* n_bytes);

/* ---- requests ---- */

typedef struct ingot_request ingot_request;

typedef struct ingot_request_options {
  size_t struct_size;
  int max_tokens;             /* -1: to the end of the context */
  float temperature;          /* 0.8; 0: always the likeliest */
  int top_k;                  /* 40; 0: off */
  float top_p;                /* 0.95; 1: off */
  float min_p;                /* 0.05; 0: off */
  float repetition_penalty;   /* 1: off */
  float presence_penalty;     /* 0: off */
  float frequency_penalty;    /* 0: off */
  uint64_t seed;              /* the same seed gives the same draws */
  int logprobs;               /* 1: log-probabilities of the tokens drawn */
  int ignore_eos;             /* 1: go on when the model wants to stop */
  const int32_t* stop_tokens; /* [n_stop_tokens], in addition to the model's own */
  size_t n_stop_tokens;
  int priority;           /* -100 to 100 */
  const char* cache_salt; /* only requests with equal salts share cached prefixes; NULL: no salt */
  double timeout_s;       /* the request ends after this time at the latest; 0: no limit */
  /* The answer follows one of these, behind its reasoning; NULL, as all are at first: it is free. What cannot be
   * enforced is INGOT_INVALID. An answer that ends by max_tokens is the beginning of a text that follows. Where no
   * token of the model can follow, the answer ends with INGOT_FINISH_ERROR. */
  const char* json_schema; /* JSON that this JSON Schema allows */
  const char* regex;       /* a match of this regular expression (ECMA 262), as a whole */
  const char* grammar;     /* a text of this grammar: GBNF or Lark */
  float typical_p;         /* locally typical sampling; 1: off */
  int penalty_window;      /* how many tokens back the penalties look: 64; -1: all */
} ingot_request_options;

INGOT_API void ingot_request_options_init_sized(ingot_request_options* options, size_t size);
static inline void ingot_request_options_init(ingot_request_options* options) {
  ingot_request_options_init_sized(options, sizeof(*options));
}

typedef enum ingot_event_kind {
  INGOT_EVENT_TOKEN = 0,  /* a token was drawn */
  INGOT_EVENT_FINISH = 1, /* the last event of a request */
} ingot_event_kind;

typedef enum ingot_finish {
  INGOT_FINISH_STOP = 0,      /* a stop token */
  INGOT_FINISH_LENGTH = 1,    /* max_tokens, or the end of the context */
  INGOT_FINISH_CANCELLED = 2, /* by ingot_cancel, or with its model */
  INGOT_FINISH_ERROR = 3,     /* event.text says why */
  INGOT_FINISH_TIMEOUT = 4,
} ingot_finish;

typedef struct ingot_event {
  ingot_event_kind kind;
  int32_t token;    /* the token drawn; in a finish by a stop token, the stop token; else -1 */
  float logprob;    /* if the request's options ask for it */
  const char* text; /* the characters that this event completes, possibly none; zero-terminated */
  size_t n_bytes;
  ingot_finish finish; /* this field and those below are set in INGOT_EVENT_FINISH only */
  int prompt_tokens;
  int cached_tokens; /* prompt tokens found in the cache, not computed */
  int output_tokens;
} ingot_event;

/* Called on a thread of the library for every event, in order. The callback must be quick and must not free the model.
 * The event and its text are valid until the callback returns. */
typedef void (*ingot_callback)(const ingot_event* event, void* user);

/* prompt: [n_prompt] tokens. With a callback, the request's events go to the callback; with NULL, they wait for
 * ingot_poll. options may be NULL. Free the request in either case. */
INGOT_API ingot_status ingot_submit(ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                    const ingot_request_options* options, ingot_callback callback, void* user,
                                    ingot_request** request);
/* Gets the next event; waits for it at most timeout_ms (-1: no limit). *event changes only if INGOT_OK is returned, so
 * after INGOT_END it still has the finish. The event's text is valid until the next INGOT_OK. */
INGOT_API ingot_status ingot_poll(ingot_request* request, int timeout_ms, ingot_event* event);
INGOT_API void ingot_cancel(ingot_request* request);
INGOT_API void ingot_request_free(ingot_request* request); /* cancels the request first; NULL is allowed */

/* ---- logits ---- */

/* Computes tokens [n] as a request beside the others, and waits for it. Writes the logits that follow each token from
 * number `first` on: logits [n - first, ingot_n_vocab()]; first = n - 1 is the last token alone, which is much less
 * work. capacity: in numbers. */
INGOT_API ingot_status ingot_logits(ingot_model* model, const int32_t* tokens, size_t n, size_t first, float* logits,
                                    size_t capacity);

/* ---- embeddings ---- */

/* A model that makes vectors of texts, or scores of documents. Any number of threads may use it; the calls run one after
 * another. */
typedef struct ingot_embedder ingot_embedder;

typedef struct ingot_embedder_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  int n_ctx;            /* tokens of the longest text; 0: as many as the model reads, at most 8192 */
  int max_batch_tokens; /* of several texts in one step; 2048 */
  const char* pooling;  /* "cls", "mean" or "last"; NULL: as the checkpoint says */
  int normalize;        /* 1, the default: vectors of length 1; 0: vectors as the pooling gives them */
} ingot_embedder_options;

INGOT_API void ingot_embedder_options_init_sized(ingot_embedder_options* options, size_t size);
static inline void ingot_embedder_options_init(ingot_embedder_options* options) {
  ingot_embedder_options_init_sized(options, sizeof(*options));
}

/* path: a GGUF file or a Hugging Face directory, of an encoder or of another model that states its pooling. options
 * may be NULL. */
INGOT_API ingot_status ingot_embedder_load(const char* path, const ingot_embedder_options* options,
                                           ingot_embedder** embedder);
INGOT_API void ingot_embedder_free(ingot_embedder* embedder); /* after its last call has returned; may be NULL */

INGOT_API int ingot_embedder_dim(const ingot_embedder* embedder);

/* Writes vectors: [n_texts, ingot_embedder_dim()]; returns INGOT_INVALID if capacity, in numbers, is less. n_bytes
 * [n_texts]: the length of each text; NULL: each text is zero-terminated. If the model needs a prompt before a text
 * ("query: "), the prompt must be part of the text. truncate: texts that are too long for the model lose their end;
 * without truncate they give INGOT_INVALID. */
INGOT_API ingot_status ingot_embed(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes,
                                   size_t n_texts, int truncate, float* vectors, size_t capacity);

typedef struct ingot_embed_options {
  size_t struct_size;
  int truncate;            /* as in ingot_embed; 0 */
  const char* prompt_name; /* of a prompt of the model, such as "query", to put before each text; NULL: its default */
} ingot_embed_options;

INGOT_API void ingot_embed_options_init_sized(ingot_embed_options* options, size_t size);
static inline void ingot_embed_options_init(ingot_embed_options* options) {
  ingot_embed_options_init_sized(options, sizeof(*options));
}

/* The same with options, which may be NULL. */
INGOT_API ingot_status ingot_embed_with(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes,
                                        size_t n_texts, const ingot_embed_options* options, float* vectors,
                                        size_t capacity);

/* Writes scores [n_documents]: how well each document answers the query; more is better. The model must be of
 * INGOT_KIND_RERANKER. query is zero-terminated; documents, n_bytes and truncate are as in ingot_embed. */
INGOT_API ingot_status ingot_rerank(ingot_embedder* embedder, const char* query, const char* const* documents,
                                    const size_t* n_bytes, size_t n_documents, int truncate, float* scores);

#ifdef __cplusplus
}
#endif
#endif
