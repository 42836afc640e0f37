/* ref/hot.h - REF_HOT marks a loop that is compiled twice and chosen by processor at load time.
 *
 * The tree is built for the plain x86-64 baseline, where fmaf() is a library call of 4 ns and a
 * vector holds four floats. A REF_HOT function also exists with FMA and wider vectors: 0.1 to
 * 0.2 ns for the same operation. Both give the same bits: nothing in ref/ depends on vector
 * width, since sums keep their written order, and fmaf() rounds once in either form
 * (tests/test_hot.c runs both).
 *
 * Static functions only: clang 14 gives the function that chooses another name than gcc does,
 * under which no other file finds it.
 *
 * The best name differs by compiler: gcc 12 knows arch=x86-64-v3 (AVX2 + FMA) here, clang 14
 * does not, and a plain "avx2" would take precedence over "fma" on both and lose the
 * instruction. REF_HOT is empty elsewhere, under ThreadSanitizer (whose runtime the load-time
 * resolver outruns), and where REF_HOT_OFF asks for the baseline. */
#ifndef REF_HOT_H
#define REF_HOT_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REF_HOT_OFF 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(REF_HOT_OFF)
#define REF_HOT_OFF 1
#endif

#if defined(REF_HOT_OFF) || !defined(__x86_64__) || !defined(__GNUC__) || defined(__CUDACC__)
#define REF_HOT
#elif defined(__clang__)
#define REF_HOT __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define REF_HOT __attribute__((target_clones("default", "arch=x86-64-v3")))
#endif

/* A helper of REF_HOT functions: it must be inlined into them to be compiled with their wider
 * vectors, and gcc leaves larger ones out of line otherwise. */
#if defined(__GNUC__) && !defined(__CUDACC__)
#define REF_INLINE static inline __attribute__((always_inline))
#else
#define REF_INLINE static inline
#endif

#endif
