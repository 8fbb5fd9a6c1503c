/* ingot's C API, for any language that can call C: load a model, submit requests, read their events.
 *
 * Every function that can fail returns an ingot_status; the message of the last failure on the calling thread is in
 * ingot_last_error(). Strings are UTF-8. A model and its requests may be used from any number of threads, but one
 * request may be polled by only one thread at a time. No function throws a C++ exception. The library writes nothing to
 * standard output or standard error, except one line when it aborts. An abort is a bug in the library. Messages other
 * than errors go to the callback of ingot_set_log.
 *
 * Model files stay mapped in memory until their model is freed. Do not write to a mapped file or shorten it. Writing
 * changes the model's weights, and a thread that reads a removed page gets SIGBUS. The library handles no signals. By
 * default SIGBUS ends the process; your own handler must end the process too, because the read cannot be completed. To
 * replace a model, write a new file and rename it over the old name; the mapping keeps the old file.
 *
 * Structs that you pass begin with their size. Call the struct's ..._init function first; from a language other than C,
 * call ..._init_sized with the size of your struct. A newer library may add fields at the end of a struct, and older
 * programs keep working. An older library rejects a newer struct if a field unknown to the library is set. */
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
  INGOT_INTERNAL = 6, /* a bug in the library */
} ingot_status;

INGOT_API const char* ingot_version(void);             /* "0.1.0" */
INGOT_API const char* ingot_last_error(void);          /* of this thread, valid until its next failure; "" at first */
INGOT_API const char* ingot_status_name(ingot_status); /* "INGOT_OK" */

/* ---- log ---- */

typedef enum ingot_log_level {
  INGOT_LOG_DEBUG = 0,
  INGOT_LOG_INFO = 1, /* what was loaded, and the load time */
  INGOT_LOG_WARN = 2, /* the call succeeds, but there is something to check: an unused tensor or an invalid template */
} ingot_log_level;

/* text is zero-terminated and valid until the callback returns. The library may call the callback from any thread, but
 * never from two threads at the same time. The callback must not call the library. */
typedef void (*ingot_log_callback)(ingot_log_level level, const char* text, void* user);

/* Sets the log callback of the whole process. The callback gets messages of level `least` and above. NULL, the initial
 * value, drops all messages. After the return, the previous callback is not called again. */
INGOT_API void ingot_set_log(ingot_log_callback callback, ingot_log_level least, void* user);

/* ---- models ---- */

typedef struct ingot_model ingot_model;

typedef void (*ingot_progress_callback)(size_t done_bytes, size_t total_bytes, void* user);

typedef struct ingot_model_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  int n_ctx;            /* tokens of a request, prompt and output; 0: the model's limit, or as many as fit in memory */
  int max_seqs;         /* requests computed at once; 8 */
  int max_batch_tokens; /* in one step; 0: 512 on the CPU, up to 2048 on a GPU */
  int n_kv_tokens;      /* size of the KV cache; 0: n_ctx for each request, or as many tokens as fit */
  int max_queue;        /* requests that wait before INGOT_FULL; 0: any number */
  int deterministic;    /* 1: batch-invariant, other requests do not change a request's tokens */
  const char* kv_type;  /* of the KV cache: "f16", "bf16", "f32", "fp8" or "q8_0"; on a GPU also "q4_0" and "q8_0/q4_0"
                         * (keys/values); NULL: "f16" */
  /* Speculative decoding: the source of draft tokens. A step may then give several tokens; the text is the same. "mtp"
   * (the model's own layer for multi-token prediction), "draft" (the model `draft`), "eagle3" (the head `draft`),
   * "ngram" (the tokens that followed the same words before), "auto" (`draft` if given, else "mtp" if the model has
   * such a layer, else "ngram") or "off"; NULL: "off". */
  const char* speculate;
  const char* draft; /* path of a small model with the same tokens, or of an EAGLE-3 head; NULL: none */
  /* Several devices: `device` is the first GPU or a list, such as "cuda:0,cuda:2". */
  int tp;                    /* tensor parallelism: devices that compute a share of every layer; 1 */
  int pp;                    /* pipeline parallelism: devices that have some of the layers each; 1 */
  int gpu_layers;            /* the last layers run on the GPU, the others on the CPU; -1: as many as fit */
  double gpu_memory;         /* up to 1: a share of the GPU's memory; more: bytes; 0: as the context needs */
  const char* quantize;      /* the format of dense matrices, such as "Q8_0"; NULL: as stored */
  const char* chat_template; /* in Jinja, or the name "chatml"; NULL: the model's */
  ingot_progress_callback progress; /* called while ingot_load reads the weights, on its thread; NULL: none */
  void* progress_user;
  const char* mmproj; /* path of a GGUF file with the model's vision tower; NULL: the one beside the model, if any */
  int no_images;      /* 1: load neither vision tower nor ears */
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
INGOT_API int ingot_reads_images(const ingot_model* model);     /* 1: the model has a vision tower */
INGOT_API int ingot_reads_recordings(const ingot_model* model); /* 1: the model has ears */
/* bytes: [n] of a file, or of its beginning. 1: it is a recording, and an image otherwise */
INGOT_API int ingot_is_recording(const void* bytes, size_t n);

typedef enum ingot_model_kind {
  INGOT_KIND_TEXT = 0,     /* generates text: ingot_load */
  INGOT_KIND_EMBEDDER = 1, /* embeds texts: ingot_embedder_load and ingot_embed */
  INGOT_KIND_RERANKER = 2, /* scores documents for a query: ingot_embedder_load and ingot_rerank */
  INGOT_KIND_SPEECH = 3,   /* writes down recordings: ingot_speech_load and ingot_transcribe */
} ingot_model_kind;

/* Sets *kind to the kind of the model at `path`. Reads the headers of the files, not the weights. */
INGOT_API ingot_status ingot_kind_of(const char* path, ingot_model_kind* kind);

/* ---- text ---- */

/* Writes at most `capacity` tokens to tokens [capacity] and sets *n to the number of tokens of the text; capacity 0
 * only counts them. add_special: adds BOS and similar tokens that the model needs. parse_special: converts text such as
 * <|im_end|> to control tokens. */
INGOT_API ingot_status ingot_tokenize(const ingot_model* model, const char* text, size_t n_bytes, int add_special,
                                      int parse_special, int32_t* tokens, size_t capacity, size_t* n);
/* As ingot_tokenize, for messages that the model's chat template renders: a JSON array of {"role": ..., "content":
 * ...}. */
INGOT_API ingot_status ingot_tokenize_chat(const ingot_model* model, const char* messages, int32_t* tokens,
                                           size_t capacity, size_t* n);

typedef struct ingot_image {
  const void* bytes; /* [n_bytes]: a JPEG, PNG, WebP or GIF file */
  size_t n_bytes;
} ingot_image;

typedef struct ingot_chat_options {
  size_t struct_size;
  const char* tools;     /* a JSON array of {"type": "function", "function": {"name": ..., "description": ...,
                            "parameters": a JSON Schema}}, shown to the model; NULL: none */
  const char* variables; /* a JSON object, more template variables: {"enable_thinking": false}; NULL: none */
  /* [n_images]: the images of the messages, in order. Each has a part {"type": "image"} in the content of a message:
   * [{"type": "image"}, {"type": "text", "text": "What is this?"}]. Pass the same images to ingot_submit. An audio
   * file is a recording, whose part is {"type": "audio"}: the content tells what a file is. */
  const ingot_image* images;
  size_t n_images;
} ingot_chat_options;

INGOT_API void ingot_chat_options_init_sized(ingot_chat_options* options, size_t size);
static inline void ingot_chat_options_init(ingot_chat_options* options) {
  ingot_chat_options_init_sized(options, sizeof(*options));
}

/* As ingot_tokenize_chat, with options, which may be NULL. An assistant's message may have "tool_calls" in the form
 * that ingot_read_answer writes. A tool's result is {"role": "tool", "tool_call_id": ..., "content": ...}. */
INGOT_API ingot_status ingot_tokenize_chat_with(const ingot_model* model, const char* messages,
                                                const ingot_chat_options* options, int32_t* tokens, size_t capacity,
                                                size_t* n);

/* Parses an answer into a JSON message, which can be appended to `messages`: {"role": "assistant", "content": ...,
 * "reasoning_content": ..., "tool_calls": [{"id": ..., "type": "function", "function": {"name": ..., "arguments": JSON
 * as a string}}]}. The message has "reasoning_content" only if the model reasoned, and "tool_calls" only if it called a
 * tool. prompt: the submitted tokens, which may already open the reasoning. tools: as in ingot_chat_options; NULL:
 * calls are not parsed and stay in the content. A call that is incomplete or cannot be read is content too. tokens: the
 * tokens of the request's events; the answer may be incomplete. Writes at most `capacity` bytes, not zero-terminated,
 * and sets *n_bytes to the message's length. */
INGOT_API ingot_status ingot_read_answer(const ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                         const char* tools, const int32_t* tokens, size_t n, char* json,
                                         size_t capacity, size_t* n_bytes);

/* Parses an answer while it is generated: reports what new tokens add to the message. */
typedef struct ingot_answer ingot_answer;

/* prompt and tools: as in ingot_read_answer. Free the answer with ingot_answer_free. */
INGOT_API ingot_status ingot_answer_begin(const ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                          const char* tools, ingot_answer** answer);
/* Adds the next tokens [n] of the answer. n = 0 ends the answer and must be the last call. *json is valid until the
 * next call with this answer. *json is a delta in OpenAI's form: {"content": ..., "reasoning_content": ...,
 * "tool_calls": [{"index": ..., "id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}]}. A delta
 * has only the members that grow. Only the first delta of a call has the call's id, type and name. Concatenate the
 * arguments of all its deltas. */
INGOT_API ingot_status ingot_answer_feed(ingot_answer* answer, const int32_t* tokens, size_t n, const char** json,
                                         size_t* n_bytes);
INGOT_API void ingot_answer_free(ingot_answer* answer); /* NULL is allowed */

/* Writes the text of tokens [n]: at most capacity bytes, not zero-terminated. Sets *n_bytes to the text's length. */
INGOT_API ingot_status ingot_detokenize(const ingot_model* model, const int32_t* tokens, size_t n, char* text,
                                        size_t capacity, size_t* n_bytes);

/* ---- requests ---- */

typedef struct ingot_request ingot_request;

/* When a search with beams ends. */
typedef enum ingot_early_stopping {
  INGOT_EARLY_NO = 0,    /* when the best beam, if it ended now, would not be better than the worst finished text */
  INGOT_EARLY_YES = 1,   /* when there are as many finished texts as beams */
  INGOT_EARLY_NEVER = 2, /* when no beam can become better than the worst finished text */
} ingot_early_stopping;

typedef struct ingot_request_options {
  size_t struct_size;
  int max_tokens;             /* -1: up to the end of the context */
  float temperature;          /* 0.8; 0: always the most likely token */
  int top_k;                  /* 40; 0: off */
  float top_p;                /* 0.95; 1: off */
  float min_p;                /* 0.05; 0: off */
  float repetition_penalty;   /* 1: off */
  float presence_penalty;     /* 0: off */
  float frequency_penalty;    /* 0: off */
  uint64_t seed;              /* the same seed gives the same samples */
  int logprobs;               /* 1: log-probabilities of the sampled tokens */
  int ignore_eos;             /* 1: do not stop at the model's stop tokens */
  const int32_t* stop_tokens; /* [n_stop_tokens], in addition to the model's own */
  size_t n_stop_tokens;
  int priority;           /* -100 to 100 */
  const char* cache_salt; /* only requests with equal salts share cached prefixes; NULL: no salt */
  double timeout_s;       /* the request ends after this time at the latest; 0: no limit */
  /* Constraints of the answer after its reasoning; set at most one; NULL, the default: none. A constraint that cannot
   * be enforced gives INGOT_INVALID. An answer that max_tokens ends is the beginning of a matching text. If no token of
   * the model can follow, the answer ends with INGOT_FINISH_ERROR. */
  const char* json_schema; /* JSON that this JSON Schema allows */
  const char* regex;       /* a match of this regular expression (ECMA 262), as a whole */
  const char* grammar;     /* a text of this grammar: GBNF or Lark */
  float typical_p;         /* locally typical sampling; 1: off */
  int penalty_window;      /* the penalties cover this many last tokens: 64; -1: all */
  int top_logprobs;        /* with logprobs: the likeliest tokens of each place too, this many, at most 20 */
  const int32_t* bias_tokens; /* [n_biases]: at most 1024 tokens, to whose logits biases are added */
  const float* biases;        /* [n_biases]; -INFINITY forbids the token */
  size_t n_biases;
  /* [n_images]: the images and recordings of a prompt that ingot_tokenize_chat_with made with them. ingot_submit runs
   * the towers on its own thread, which takes long; the results of the last files are kept. */
  const ingot_image* images;
  size_t n_images;
  /* Above 1: a search for the likeliest text with this many beams, at most 64 and max_seqs, instead of samples. Its
   * events come when the search is over. It needs top_logprobs 0, and the model's speculate is not used. */
  int n_beams;
  float length_penalty; /* 1; of n_beams: a text's log-probability is divided by its number of tokens to this power */
  ingot_early_stopping early_stopping; /* of n_beams; INGOT_EARLY_NO */
} ingot_request_options;

INGOT_API void ingot_request_options_init_sized(ingot_request_options* options, size_t size);
static inline void ingot_request_options_init(ingot_request_options* options) {
  ingot_request_options_init_sized(options, sizeof(*options));
}

typedef enum ingot_event_kind {
  INGOT_EVENT_TOKEN = 0,  /* a token was sampled */
  INGOT_EVENT_FINISH = 1, /* the last event of a request */
} ingot_event_kind;

typedef enum ingot_finish {
  INGOT_FINISH_STOP = 0,      /* a stop token */
  INGOT_FINISH_LENGTH = 1,    /* max_tokens, or the end of the context */
  INGOT_FINISH_CANCELLED = 2, /* by ingot_cancel or ingot_free */
  INGOT_FINISH_ERROR = 3,     /* event.text says why */
  INGOT_FINISH_TIMEOUT = 4,
} ingot_finish;

typedef struct ingot_event {
  ingot_event_kind kind;
  int32_t token;    /* the sampled token; with INGOT_FINISH_STOP, the stop token; otherwise -1 */
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

/* prompt: [n_prompt] tokens. A callback gets the request's events; with NULL, the events wait for ingot_poll. options
 * may be NULL. Free the request in both cases. */
INGOT_API ingot_status ingot_submit(ingot_model* model, const int32_t* prompt, size_t n_prompt,
                                    const ingot_request_options* options, ingot_callback callback, void* user,
                                    ingot_request** request);
/* Gets the next event; waits at most timeout_ms for the event (-1: no limit). *event changes only if INGOT_OK is
 * returned, so after INGOT_END *event is still the finish event. The event's text is valid until the next INGOT_OK. */
INGOT_API ingot_status ingot_poll(ingot_request* request, int timeout_ms, ingot_event* event);
typedef struct ingot_top_logprob {
  int32_t token;
  float logprob;
} ingot_top_logprob;

/* The likeliest tokens in the place of the event that this thread has got last, from ingot_poll or as a callback's
 * argument, the likeliest first: *top [the result]. Valid until the thread's next event. 0 without top_logprobs. */
INGOT_API size_t ingot_top_logprobs(const ingot_top_logprob** top);
INGOT_API void ingot_cancel(ingot_request* request);
INGOT_API void ingot_request_free(ingot_request* request); /* cancels the request first; NULL is allowed */

/* ---- logits ---- */

/* Computes tokens [n] as a request, and waits for the result. Writes one row of logits for each token from index
 * `first` on: logits [n - first, ingot_n_vocab()]. first = n - 1 computes only the last row, which is much less work.
 * capacity: the number of floats that logits can hold. */
INGOT_API ingot_status ingot_logits(ingot_model* model, const int32_t* tokens, size_t n, size_t first, float* logits,
                                    size_t capacity);

/* ---- embeddings ---- */

/* A model that embeds texts or scores documents. Any number of threads may use one embedder; the calls run one after
 * another. */
typedef struct ingot_embedder ingot_embedder;

typedef struct ingot_embedder_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  int n_ctx;            /* tokens of the longest text; 0: the model's limit, at most 8192 */
  int max_batch_tokens; /* of all texts in one step; 2048 */
  const char* pooling;  /* "cls", "mean" or "last"; NULL: as the checkpoint says */
  int normalize;        /* 1, the default: vectors of length 1; 0: vectors as the pooling gives them */
} ingot_embedder_options;

INGOT_API void ingot_embedder_options_init_sized(ingot_embedder_options* options, size_t size);
static inline void ingot_embedder_options_init(ingot_embedder_options* options) {
  ingot_embedder_options_init_sized(options, sizeof(*options));
}

/* path: a GGUF file or a Hugging Face directory. The model is an encoder, or another model that states its pooling.
 * options may be NULL. */
INGOT_API ingot_status ingot_embedder_load(const char* path, const ingot_embedder_options* options,
                                           ingot_embedder** embedder);
INGOT_API void ingot_embedder_free(ingot_embedder* embedder); /* after its last call has returned; may be NULL */

INGOT_API int ingot_embedder_dim(const ingot_embedder* embedder);

/* Writes vectors: [n_texts, ingot_embedder_dim()]. Returns INGOT_INVALID if the vectors have more than `capacity`
 * floats. n_bytes [n_texts]: the length of each text; NULL: each text is zero-terminated. If the model needs a prompt
 * before a text ("query: "), the prompt must be part of the text. truncate: 1 cuts the end of a text that is too long
 * for the model; with 0, such a text gives INGOT_INVALID. */
INGOT_API ingot_status ingot_embed(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes,
                                   size_t n_texts, int truncate, float* vectors, size_t capacity);

typedef struct ingot_embed_options {
  size_t struct_size;
  int truncate;            /* as in ingot_embed; 0 */
  const char* prompt_name; /* the model's prompt to put before each text, such as "query"; NULL: its default */
} ingot_embed_options;

INGOT_API void ingot_embed_options_init_sized(ingot_embed_options* options, size_t size);
static inline void ingot_embed_options_init(ingot_embed_options* options) {
  ingot_embed_options_init_sized(options, sizeof(*options));
}

/* As ingot_embed, with options, which may be NULL. */
INGOT_API ingot_status ingot_embed_with(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes,
                                        size_t n_texts, const ingot_embed_options* options, float* vectors,
                                        size_t capacity);

/* Writes scores [n_documents]: how well each document answers the query; more is better. The model must be of
 * INGOT_KIND_RERANKER. query is zero-terminated; documents, n_bytes and truncate are as in ingot_embed. */
INGOT_API ingot_status ingot_rerank(ingot_embedder* embedder, const char* query, const char* const* documents,
                                    const size_t* n_bytes, size_t n_documents, int truncate, float* scores);

/* ---- speech ---- */

/* A model that writes down what recordings say. Any number of threads may use one; their calls take turns. */
typedef struct ingot_speech ingot_speech;

typedef struct ingot_speech_options {
  size_t struct_size;
  const char* device;   /* "cpu", "cuda", "cuda:1" (the second GPU) or "ref"; NULL: "cpu" */
  int n_threads;        /* 0: as many as there are cores; at most 1024 */
  const char* quantize; /* the format of dense matrices in memory, such as "Q8_0"; NULL: as stored */
  int n_beams;          /* 1; the most beams of a call, at most 64: each takes memory */
} ingot_speech_options;

INGOT_API void ingot_speech_options_init_sized(ingot_speech_options* options, size_t size);
static inline void ingot_speech_options_init(ingot_speech_options* options) {
  ingot_speech_options_init_sized(options, sizeof(*options));
}

/* path: a Whisper model: a directory with safetensors or of CTranslate2, or a file of whisper.cpp. options may be
 * NULL. */
INGOT_API ingot_status ingot_speech_load(const char* path, const ingot_speech_options* options, ingot_speech** speech);
INGOT_API void ingot_speech_free(ingot_speech* speech); /* after its last call has returned; may be NULL */

typedef struct ingot_transcribe_options {
  size_t struct_size;
  const char* language; /* code or name, such as "de" or "german"; NULL: detected */
  const char* prompt;   /* text that could come before: names, words and style to expect; NULL: none */
  int translate;        /* 1: writes English; 0 */
  int word_times;       /* 1: also when each word was said; 0 */
  float temperature;    /* -1, the default: higher ones are tried where a text is poor; 0 or more: only this one */
  uint64_t seed;        /* of temperatures above 0 */
  const char* hotwords; /* words to expect in every window of 30 seconds, before the prompt; NULL: none */
  int n_beams;          /* 1; above: a search for the likeliest text, at temperature 0 */
} ingot_transcribe_options;

INGOT_API void ingot_transcribe_options_init_sized(ingot_transcribe_options* options, size_t size);
static inline void ingot_transcribe_options_init(ingot_transcribe_options* options) {
  ingot_transcribe_options_init_sized(options, sizeof(*options));
}

/* Sets *json to what the recording says: the verbose JSON of OpenAI's API, with segments, and with words if wanted; *n:
 * its length. The text is valid until this thread's next call. bytes: a whole file (WAV, FLAC, Ogg, MP3, AIFF, AU,
 * CAF). options may be NULL. */
INGOT_API ingot_status ingot_transcribe(ingot_speech* speech, const void* bytes, size_t n_bytes,
                                        const ingot_transcribe_options* options, const char** json, size_t* n);

#ifdef __cplusplus
}
#endif
#endif
