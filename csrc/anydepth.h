/* The C API of anydepth's native engine: int8 Transformers at every depth, from one copy of the weights.
 *
 * Functions that return an int return ANYDEPTH_OK or one of the negative codes; those that return a pointer return null
 * on an error. `anydepth_error` and `anydepth_error_code` then give the reason, per thread. All arguments are checked and
 * no exception escapes. Several threads may use a model at once, also while another one appends to it; only
 * `anydepth_set_shortlist`, `anydepth_set_threads` and `anydepth_free` need it alone. */
#ifndef ANYDEPTH_H
#define ANYDEPTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define ANYDEPTH_API __declspec(dllexport)
#else
#define ANYDEPTH_API __attribute__((visibility("default")))
#endif

#define ANYDEPTH_INTERFACE 5 /* the version of this API */

enum {
  ANYDEPTH_OK = 0,
  ANYDEPTH_INVALID = -1,   /* an argument is wrong */
  ANYDEPTH_FILE = -2,      /* the file cannot be read, is damaged or is of another version */
  ANYDEPTH_NOT_YET = -3,   /* that part of the file has not arrived */
  ANYDEPTH_STOPPED = -4,   /* by the abort flag, or because the time was over */
  ANYDEPTH_TOO_LONG = -5,  /* a text has more tokens than the model takes */
  ANYDEPTH_NO_MEMORY = -6,
  ANYDEPTH_INTERNAL = -7
};

/* Search among the lexical shortlist of a file. */
enum {
  ANYDEPTH_SHORTLIST_OFF = 0, /* among the whole vocabulary */
  ANYDEPTH_SHORTLIST_ON = 1,  /* refuse a file that has none */
  ANYDEPTH_SHORTLIST_IF_THERE = 2 /* the whole vocabulary until it has arrived */
};

/* When a token leaves the decoder early. */
enum {
  ANYDEPTH_EXIT_NONE = 0,
  ANYDEPTH_EXIT_MARGIN = 1,     /* the best logit is so far above the second */
  ANYDEPTH_EXIT_CONFIDENCE = 2, /* the best token is so probable */
  ANYDEPTH_EXIT_PATIENCE = 3    /* the best token is the same at so many exits in a row */
};

typedef struct anydepth_model anydepth_model;

ANYDEPTH_API int anydepth_interface(void);
ANYDEPTH_API const char* anydepth_error(void);
ANYDEPTH_API int anydepth_error_code(void);
/* The name of the kernels: those of this name, or the fastest; null if this processor cannot run them. */
ANYDEPTH_API const char* anydepth_kernels(const char* name);

/* Opening. `kernels` may be null: the fastest. */

/* A file, by its path in UTF-8. It is mapped, so processes share its memory: replace it by renaming, never in place. */
ANYDEPTH_API anydepth_model* anydepth_open(const char* path, const char* kernels);
/* A file in memory, which is copied. */
ANYDEPTH_API anydepth_model* anydepth_load(const void* data, size_t size, const char* kernels);
/* A file that arrives piece by piece, by `anydepth_append`: depths become ready from the shallowest on. */
ANYDEPTH_API anydepth_model* anydepth_begin(const char* kernels);
ANYDEPTH_API int anydepth_append(anydepth_model* model, const void* data, size_t size);
ANYDEPTH_API void anydepth_free(anydepth_model* model);
/* Threads that share one call's work, with the caller's; 1 until it is set. A call has them if no other runs at that time.
 * Outputs are the same to the bit. While no call runs. */
ANYDEPTH_API int anydepth_set_threads(anydepth_model* model, int32_t threads);

/* Asking. */

ANYDEPTH_API uint64_t anydepth_memory(const anydepth_model* model); /* bytes of the sections that are there */
ANYDEPTH_API int anydepth_complete(const anydepth_model* model);    /* 1 if the whole file is there, or 0 */
ANYDEPTH_API int anydepth_has_shortlist(const anydepth_model* model);
/* The header's JSON: configuration, languages, depths with measured figures. Valid as long as the model. */
ANYDEPTH_API const char* anydepth_header(const anydepth_model* model);

typedef struct {
  const char* name;             /* such as 4-1; valid as long as the model */
  const char* pair;             /* the language pair it is for, or null: all */
  int32_t encoder_layers, decoder_layers;
  int32_t ready;                /* 1 if its layers are there */
  int32_t by_word;              /* 1 if each word has its own depth: `anydepth_translate` does not take it */
  double seconds_per_sentence;  /* as measured; NaN: not measured */
  double bleu, chrf;
} anydepth_depth;
ANYDEPTH_API int32_t anydepth_depths(anydepth_model* model); /* how many, or a code */
ANYDEPTH_API int anydepth_depth_at(anydepth_model* model, int32_t index, anydepth_depth* depth);

/* Translating text. */

typedef struct {
  const char* depth;     /* such as 4-1; null: the default, or the best within the budget, of those that are there */
  const char* pair;      /* such as en-fr, of a model that has several; else null */
  double budget;         /* seconds per sentence, by the times that the file has; 0: none */
  double timeout;        /* seconds after which the call stops; 0: none */
  const int32_t* abort;  /* the call stops once this is not 0; or null */
  int32_t beam, nbest;
  int32_t max_length;    /* longest output in tokens; 0: twice the source and 10 more */
  int32_t cut_long;      /* 1: cut texts that are too long instead of refusing them */
  int32_t scores;        /* 1: scores of greedy search, too */
  int32_t shortlist;     /* ANYDEPTH_SHORTLIST_... */
  float length_penalty;
  const char* exit;      /* tokens leave the decoder early by a rule, such as margin:2, confidence:0.9 or patience:2, at
                            any depth of the file that this one begins with; null: none does */
} anydepth_request;
/* Greedy search at the default depth, among the shortlist if the file has one. */
ANYDEPTH_API void anydepth_defaults(anydepth_request* request);

typedef struct anydepth_translations anydepth_translations;
typedef struct {
  const char* text; /* UTF-8, of one line */
  const char* depth;
  float score;   /* log-probability over the length penalty, NaN if it was not asked for */
  int32_t ended; /* 0: it ran into the limit of its length */
  float layers;  /* of the decoder, the mean of its tokens */
} anydepth_output;

/* 1 if a text of `length` bytes is short enough for the model, 0 if it had better be divided, or a code. */
ANYDEPTH_API int anydepth_fits(anydepth_model* model, const char* text, size_t length, const char* pair);
/* `lengths` in bytes, or null: texts end in a zero byte. Texts must be UTF-8. */
ANYDEPTH_API anydepth_translations* anydepth_translate(anydepth_model* model, const char* const* texts,
                                                       const size_t* lengths, int32_t count,
                                                       const anydepth_request* request);
/* How many outputs a text has, or a code; and one of them, the best first, valid as long as the translations. */
ANYDEPTH_API int32_t anydepth_outputs(const anydepth_translations* translations, int32_t text);
ANYDEPTH_API int anydepth_output_at(const anydepth_translations* translations, int32_t text, int32_t rank,
                                    anydepth_output* output);
ANYDEPTH_API void anydepth_translations_free(anydepth_translations* translations);

/* Searching with token ids. */

/* Which layers run, by index from 0, and the weights of their residual branches: null for 1. */
typedef struct {
  const int32_t* encoder;
  const float* encoder_weights;
  int32_t encoder_layers;
  const int32_t* decoder;
  const float* decoder_weights;
  int32_t decoder_layers;
} anydepth_subnetwork;

/* Concatenated sentences: sentence i has the tokens starts[i] to before starts[i + 1], the last of them EOS.
 * `depths` is the number of encoder layers of each token, or null. `limits` are the longest outputs, with EOS. */
typedef struct {
  const int32_t* tokens;
  const int32_t* starts;
  const int32_t* depths;
  const int32_t* limits;
  int32_t sentences;
} anydepth_batch;

/* With `draft_layers`, the first layers of the decoder draft tokens, `draft_length` at a time; 0: chosen by the
 * acceptance rate. With an `exit_rule`, tokens may leave after as many decoder layers as one of `exits`, which ascend.
 * `timeout` and `abort` as in a request. */
typedef struct {
  int32_t beam, nbest, min_length, scores, shortlist, draft_layers, draft_length;
  float length_penalty;
  double timeout;
  const int32_t* abort;
  const int32_t* exits;
  int32_t exit_count, exit_rule;
  float exit_value;
} anydepth_options;

/* The nbest outputs of each sentence, best first, in the caller's memory: tokens [sentences, nbest, longest limit],
 * the others [sentences, nbest]. A length of -1: there is no such output. */
typedef struct {
  int32_t* tokens;
  int32_t* lengths;
  int32_t* ended;
  float* scores;
  float* layers; /* of the decoder, the mean of an output's tokens; or null */
} anydepth_results;

/* A lexical shortlist in place of the file's: tokens that are always candidates, and those of each source token:
 * offsets [vocabulary + 1] into outputs. For a file that is whole, before other threads use the model. */
ANYDEPTH_API int anydepth_set_shortlist(anydepth_model* model, const int32_t* always, size_t always_count,
                                        const int32_t* offsets, const int32_t* outputs);
ANYDEPTH_API int anydepth_search(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                                 const anydepth_options* options, anydepth_results* results);
/* Logits of one sentence's target, which begins with BOS: [target length, vocabulary], `at_once` positions per pass. */
ANYDEPTH_API int anydepth_logits(const anydepth_model* model, const anydepth_subnetwork* sub,
                                 const anydepth_batch* batch, const int32_t* target, int32_t target_length,
                                 int32_t at_once, float* logits);
/* Classifying token ids. */

/* How many classes the model has, 0 if it translates, or a code. */
ANYDEPTH_API int32_t anydepth_classes(const anydepth_model* model);

/* A whole text may leave after as many layers as one of `exits`, which ascend: once a class has the probability
 * `confidence`, or once `patience` exits in a row have found the same class; 0: not by that. With `halting_scale` above 0
 * the model's halting unit says how deep each token goes, times that. `timeout` and `abort` as in a request. */
typedef struct {
  const int32_t* exits;
  int32_t exit_count, patience;
  float confidence, halting_scale;
  double timeout;
  const int32_t* abort;
} anydepth_classify_options;
/* Of each text the probability of each class, [sentences, classes], and how many layers each token ran, [tokens]. The
 * sub-network has no decoder layers, and the batch needs no limits. */
ANYDEPTH_API int anydepth_classify(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                                   const anydepth_classify_options* options, float* probabilities, int32_t* depths);
/* Counts of speculation since the model was opened: drafted and accepted tokens, passes, output tokens. */
ANYDEPTH_API void anydepth_speculation(const anydepth_model* model, int64_t counts[4]);

#ifdef __cplusplus
}
#endif

#endif
