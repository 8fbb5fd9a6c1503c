/* ingot's C API: load a model, submit requests, read what they say; from any language that can call C.
 *
 * Every function that can fail returns an ingot_status; the message of the last failure on the calling thread is in
 * ingot_last_error(). Strings are UTF-8. A model and its requests may be used from any number of threads, but one
 * request is polled by one thread at a time. No C++ exception leaves a function. Nothing is written to standard
 * output or standard error (but the line of an abort, which is a fault of the library): what there is to say beside
 * errors goes to the callback of ingot_set_log.
 *
 * Model files stay mapped in memory until their model is freed. Do not write to one or shorten it meanwhile: its
 * numbers change, and where pages are gone the process gets SIGBUS in whichever thread reads them. The library
 * handles no signals: the default ends the process, and a handler of yours must do so too, for the read cannot be
 * completed. To put another model in its place, write a new file and rename it over the old name; the mapping keeps
 * the old one.
 *
 * Structs that you pass begin with their size, so that a library with more fields knows which of them you set: fill
 * them with their ..._init function first. */
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
  INGOT_INVALID = 1,  /* an argument, a model file, or a request that can never run: the message says what and why */
  INGOT_FULL = 2,     /* the queue is full: try again later */
  INGOT_MEMORY = 3,   /* out of memory */
  INGOT_TIMEOUT = 4,  /* ingot_poll: nothing has come yet */
  INGOT_END = 5,      /* ingot_poll: everything has been read */
  INGOT_INTERNAL = 6, /* a fault of the library */
} ingot_status;

INGOT_API const char* ingot_version(void);             /* "0.1.0" */
INGOT_API const char* ingot_last_error(void);          /* of this thread, until its next failure; "" before the first */
INGOT_API const char* ingot_status_name(ingot_status); /* "INGOT_OK" */

/* ---- what it has to say ---- */

typedef enum ingot_log_level {
  INGOT_LOG_DEBUG = 0,
  INGOT_LOG_INFO = 1, /* what was loaded, and how long it took */
  INGOT_LOG_WARN = 2, /* it goes on, perhaps not as you think: a tensor that nobody uses, a template that is broken */
} ingot_log_level;

/* text ends with a zero and lasts until the callback returns. It is called from any thread, once at a time, and must
 * not call the library. */
typedef void (*ingot_log_callback)(ingot_log_level level, const char* text, void* user);

/* Of the whole process: messages of this level and above go to the callback; NULL, as it is at first: nowhere. When it
 * returns, the callback of before is not called any more. */
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
  int deterministic;    /* 1: the same tokens whatever runs beside */
  const char* kv_type;  /* of the KV cache: "f16", "bf16", "f32", "q8_0" or "fp8"; NULL: "f16" */
} ingot_model_options;

INGOT_API void ingot_model_options_init(ingot_model_options* options);

/* A GGUF file or a Hugging Face or MLX directory. options may be NULL. Names of the Hugging Face Hub are for the
 * program: `ingot pull ORG/REPO` prints the path to give here. */
INGOT_API ingot_status ingot_load(const char* path, const ingot_model_options* options, ingot_model** model);
/* Cancels its requests; they can still be polled to their end, and freed. Not from a callback: INGOT_INVALID. */
INGOT_API ingot_status ingot_free(ingot_model* model);

INGOT_API int ingot_n_ctx(const ingot_model* model);
INGOT_API int ingot_n_vocab(const ingot_model* model);

/* ---- text ---- */

/* Writes at most capacity tokens and says in *n how many there are; call with capacity 0 to ask. add_special: BOS
 * and the like, where the model wants them; parse_special: text such as <|im_end|> becomes control tokens. */
INGOT_API ingot_status ingot_tokenize(const ingot_model* model, const char* text, size_t n_bytes, int add_special,
                                      int parse_special, int32_t* tokens, size_t capacity, size_t* n);
/* messages: a JSON array of {"role": ..., "content": ...}, put through the model's chat template. */
INGOT_API ingot_status ingot_tokenize_chat(const ingot_model* model, const char* messages, int32_t* tokens,
                                           size_t capacity, size_t* n);
/* Writes at most capacity bytes, without a zero at the end, and says in *n_bytes how many there are. */
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
  const int32_t* stop_tokens; /* beside the model's own */
  size_t n_stop_tokens;
  int priority;           /* -100 to 100 */
  const char* cache_salt; /* only requests of equal salts share cached prefixes; NULL: none */
  double timeout_s;       /* it ends then at the latest; 0: never */
} ingot_request_options;

INGOT_API void ingot_request_options_init(ingot_request_options* options);

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
  int32_t token;    /* of a token; of a finish by a stop token, that token, else -1 */
  float logprob;    /* when asked for */
  const char* text; /* whole characters that are complete with this event, perhaps none; ends with a zero */
  size_t n_bytes;
  ingot_finish finish; /* this and the rest: of a finish */
  int prompt_tokens;
  int cached_tokens; /* of the prompt, not computed */
  int output_tokens;
} ingot_event;

/* Called on the library's own thread for every event, in order; must be quick, and must not free the model. The
 * event and its text last until it returns. */
typedef void (*ingot_callback)(const ingot_event* event, void* user);

/* With a callback the request's events go there, without one they wait for ingot_poll. options may be NULL. A
 * request is to be freed in either case. */
INGOT_API ingot_status ingot_submit(ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                    const ingot_request_options* options, ingot_callback callback, void* user,
                                    ingot_request** request);
/* The next event, waiting at most timeout_ms for it (-1: as long as it takes). *event changes with INGOT_OK alone:
 * after INGOT_END it still is the finish. Its text lasts until the next INGOT_OK. */
INGOT_API ingot_status ingot_poll(ingot_request* request, int timeout_ms, ingot_event* event);
INGOT_API void ingot_cancel(ingot_request* request);
INGOT_API void ingot_request_free(ingot_request* request); /* cancels it; NULL is fine */

/* ---- embeddings ---- */

/* A model that makes vectors of texts; may be used from any number of threads, one call after another. */
typedef struct ingot_embedder ingot_embedder;

typedef struct ingot_embedder_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  int n_ctx;            /* tokens of the longest text; 0: what the model reads, at most 8192 */
  int max_batch_tokens; /* of several texts in one step; 2048 */
  const char* pooling;  /* "cls", "mean" or "last"; NULL: as the checkpoint says */
  int normalize;        /* 1: vectors of length 1, as they come; 0: as the pooling leaves them */
} ingot_embedder_options;

INGOT_API void ingot_embedder_options_init(ingot_embedder_options* options);

/* A GGUF file or a Hugging Face directory, of an encoder or of another model that says how to pool. options may be
 * NULL. */
INGOT_API ingot_status ingot_embedder_load(const char* path, const ingot_embedder_options* options,
                                           ingot_embedder** embedder);
INGOT_API void ingot_embedder_free(ingot_embedder* embedder); /* after its last call has returned; NULL is fine */

INGOT_API int ingot_embedder_dim(const ingot_embedder* embedder);

/* Writes n_texts vectors of ingot_embedder_dim() numbers, one after another; INGOT_INVALID when capacity, in
 * numbers, is less. n_bytes has the length of each text; NULL: each ends with a zero. What a model wants in front of
 * a text ("query: ") is part of it. truncate: texts too long for the model lose their end; else they are
 * INGOT_INVALID. */
INGOT_API ingot_status ingot_embed(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes,
                                   size_t n_texts, int truncate, float* vectors, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
