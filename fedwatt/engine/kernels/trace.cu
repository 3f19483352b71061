/* What traced statements are written in, on a GPU: numbers are double, weights are float. */
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)

template <class T> inline T magnitude(T x) { return fabs(x); }
template <class T> inline T square_root(T x) { return sqrt(x); }
template <class T> inline T logarithm(T x) { return log(x); }
template <class T> inline T exponential(T x) { return exp(x); }
template <class T> inline T binary_logarithm(T x) { return log2(x); }
template <class T> inline T binary_exponential(T x) { return exp2(x); }
template <class T> inline T signum(T x) { return (T)((x > 0) - (x < 0)); }
template <class T> inline T power(T x, T y) { return pow(x, y); }
/* A number a, or NaN, against a bound b that is a number. */
template <class T> inline T at_least(T a, T b) { return b > a ? b : a; }
template <class T> inline T at_most(T a, T b) { return b < a ? b : a; }
template <class T> inline T larger(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }
template <class T> inline T smaller(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }

/* e^(y log x), a power of x >= 0 by the GPU's own logarithm and power of 2, each good to 2^-22. They
   know 0 and infinity; below the smallest normal number all count as 0. */
inline float log_power(float x, float y, float at_0, float at_infinity) {
    float p;
    asm("{ .reg .f32 log, e; lg2.approx.ftz.f32 log, %1; mul.f32 e, log, %2; "
        "ex2.approx.ftz.f32 %0, e; }"
        : "=f"(p)
        : "f"(x), "f"(y));
    return p;
}
