/* The C API of anydepth's native engine: int8 Transformers at every depth, from one copy of the weights.
 *
 * Functions that return an int return 0, or -1 on an error; those that return a pointer return null on an error.
 * `anydepth_error` then gives the reason, per thread. Several threads may use a model once its shortlist is set. */
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

#define ANYDEPTH_INTERFACE 1 /* the version of this API */

typedef struct anydepth_model anydepth_model;

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
 * acceptance rate. */
typedef struct {
  int32_t beam, nbest, min_length, scores, shortlist, draft_layers, draft_length;
  float length_penalty;
} anydepth_options;

/* The nbest outputs of each sentence, best first, in the caller's memory: tokens [sentences, nbest, longest limit],
 * the others [sentences, nbest]. A length of -1: there is no such output. */
typedef struct {
  int32_t* tokens;
  int32_t* lengths;
  int32_t* ended;
  float* scores;
} anydepth_results;

ANYDEPTH_API int anydepth_interface(void);
ANYDEPTH_API const char* anydepth_error(void);
/* The name of the kernels: those of this name, or the fastest; null if this processor cannot run them. */
ANYDEPTH_API const char* anydepth_kernels(const char* name);

ANYDEPTH_API anydepth_model* anydepth_load(const void* data, size_t size, const char* kernels);
ANYDEPTH_API void anydepth_free(anydepth_model* model);
ANYDEPTH_API size_t anydepth_memory(const anydepth_model* model);
/* A lexical shortlist: tokens that are always candidates, and those of each source token: offsets [vocabulary + 1] into
 * outputs. */
ANYDEPTH_API int anydepth_set_shortlist(anydepth_model* model, const int32_t* always, size_t always_count,
                                        const int32_t* offsets, const int32_t* outputs);

ANYDEPTH_API int anydepth_search(anydepth_model* model, const anydepth_subnetwork* sub, const anydepth_batch* batch,
                                 const anydepth_options* options, anydepth_results* results);
/* Logits of one sentence's target, which begins with BOS: [target length, vocabulary], `at_once` positions per pass. */
ANYDEPTH_API int anydepth_logits(const anydepth_model* model, const anydepth_subnetwork* sub,
                                 const anydepth_batch* batch, const int32_t* target, int32_t target_length,
                                 int32_t at_once, float* logits);
/* Counts of speculation since the model was loaded: drafted and accepted tokens, passes, output tokens. */
ANYDEPTH_API void anydepth_speculation(const anydepth_model* model, int64_t counts[4]);

#ifdef __cplusplus
}
#endif

#endif
