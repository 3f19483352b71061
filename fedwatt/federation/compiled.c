/* What the C of models is written in: see compiled.py, which puts the pieces together. */
#include <time.h>

typedef void sgemm_t(const char *, const char *, const int64_t *, const int64_t *, const int64_t *,
                     const float *, const float *, const int64_t *, const float *, const int64_t *,
                     const float *, float *, const int64_t *);

/* C = op(A) op(B) + beta C in rows; op is 'N' or 'T', and the number after a matrix is the length of
   its rows. BLAS counts by columns, so it is told Cᵀ = op(B)ᵀ op(A)ᵀ. Its numbers have 32 or 64 bits;
   small ones of 64 read the same as 32 where the low half comes first. */
static inline void multiply(sgemm_t *sgemm, char op_a, char op_b, int64_t rows, int64_t columns,
                            int64_t inner, const float *a, int64_t of_a, const float *b,
                            int64_t of_b, float beta, float *c, int64_t of_c) {
    const float one = 1.0f;
    sgemm(&op_b, &op_a, &columns, &rows, &inner, &one, b, &of_b, a, &of_a, &beta, c, &of_c);
}

static inline float sigmoid(float x) {
    return 1.0f / (1.0f + binary_power(within(-1.44269504f * x, -126.0f, 126.0f)));
}
static inline float hyperbolic_tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

static inline double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
