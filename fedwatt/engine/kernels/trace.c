/* What traced statements are written in: numbers are double, weights are float.

   The float versions are branchless, so that a loop over weights becomes vector instructions. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float from_bits(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline int32_t to_bits(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* log2 of a normal x > 0, to 2e-7 and a rounding: x = 2^octave (1 + f) with 1 + f between
   1/sqrt 2 and sqrt 2. */
static inline float binary_log(float x) {
    int32_t octave = (to_bits(x) - 0x3f3504f3) >> 23;
    float f = from_bits(to_bits(x) - octave * 0x800000) - 1.0f;
    float p = -0.14620353f;
    p = p * f + 0.23420985f;
    p = p * f - 0.24882181f;
    p = p * f + 0.28707561f;
    p = p * f - 0.36024198f;
    p = p * f + 0.48092404f;
    p = p * f - 0.72135276f;
    p = p * f + 1.44269490f;
    return p * f + (float)octave;
}

/* 2^x to 2e-7 relatively, exactly 1 at 0, for -126 <= x <= 127. */
static inline float binary_power(float x) {
    /* Adding 1.5 * 2^23 rounds to a whole number and leaves it in the last bits. */
    const float shifted = x + 12582912.0f, r = x - (shifted - 12582912.0f);
    float p = 1.32647272e-3f;
    p = p * r + 9.67151268e-3f;
    p = p * r + 5.55073374e-2f;
    p = p * r + 2.40222421e-1f;
    p = p * r + 6.93146978e-1f;
    p = p * r + 1.0f;
    return from_bits(to_bits(p) + (int32_t)((uint32_t)to_bits(shifted) << 23));
}

/* x, or the nearer bound; NaN stays NaN. */
static inline float within(float x, float low, float high) {
    x = low > x ? low : x;
    return high < x ? high : x;
}

/* Of any x; below the smallest normal number all count as that number, but 0. */
static inline float logarithm_f(float x) {
    float y = 0.69314718f * binary_log(x > 1.17549435e-38f ? x : 1.17549435e-38f);
    y = x > 3.40282347e38f ? INFINITY : y;
    y = x > 0.0f ? y : -INFINITY;
    return x >= 0.0f ? y : NAN;
}

/* Of any x; what would be above 2.4e38 is infinite, what would be below 1.2e-38 is 0. */
static inline float exponential_f(float x) {
    const float y = 1.44269504f * x;
    float p = binary_power(within(y, -126.0f, 127.49f));
    p = y > 127.49f ? INFINITY : p;
    p = y < -126.0f ? 0.0f : p;
    return x == x ? p : x;
}

/* e^(y log x), a power of x >= 0 in one step; exactly 1 for y = 0 and 0 < x < infinity. What it is
   at 0 and at infinity depends on y alone and is handed in, once a row. */
static inline float log_power(float x, float y, float at_0, float at_infinity) {
    const float e = y * binary_log(x);
    float p = binary_power(within(e, -126.0f, 127.49f));
    p = e > 127.49f ? INFINITY : p;
    p = x > 3.40282347e38f ? at_infinity : p;
    return x > 1.17549435e-38f ? p : x >= 0.0f ? at_0 : NAN;
}

/* The same for -0.98 < y < 0.98, where nothing can go out of range. */
static inline float small_log_power(float x, float y, float at_0, float at_infinity) {
    float p = binary_power(y * binary_log(x));
    p = x > 3.40282347e38f ? at_infinity : p;
    return x > 1.17549435e-38f ? p : x >= 0.0f ? at_0 : NAN;
}

/* The same for an x that is a size plus a normal number above 0, so that only infinity and NaN are
   left to care for: both give NaN. */
static inline float positive_log_power(float x, float y, float at_0, float at_infinity) {
    return binary_power(y * binary_log(x)) + (x - x);
}

/* x^y; for y that is whole also of x < 0. */
static inline float power_f(float x, float y) {
    const float whole = nearbyintf(y), odd = whole - 2.0f * nearbyintf(0.5f * whole);
    const float low = y > 0.0f ? 0.0f : INFINITY, high = y > 0.0f ? INFINITY : 0.0f;
    float p = log_power(fabsf(x), y, low, high);
    p = x < 0.0f ? (whole != y ? NAN : odd != 0.0f ? -p : p) : p;
    p = y == 1.0f ? x : y == 2.0f ? x * x : p;
    return y == 0.0f ? 1.0f : p;
}

static inline float magnitude_f(float x) { return fabsf(x); }
static inline float square_root_f(float x) { return sqrtf(x); }
static inline float signum_f(float x) { return (float)((x > 0.0f) - (x < 0.0f)); }
static inline float binary_logarithm_f(float x) { return 1.44269504f * logarithm_f(x); }
static inline float binary_exponential_f(float x) { return exponential_f(0.69314718f * x); }
/* A number a, or NaN, against a bound b that is a number. */
static inline float at_least_f(float a, float b) { return b > a ? b : a; }
static inline float at_most_f(float a, float b) { return b < a ? b : a; }
static inline float larger_f(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static inline float smaller_f(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }

static inline double signum_d(double x) { return (double)((x > 0) - (x < 0)); }
static inline double at_least_d(double a, double b) { return b > a ? b : a; }
static inline double at_most_d(double a, double b) { return b < a ? b : a; }
static inline double larger_d(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static inline double smaller_d(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }

#define magnitude(x) _Generic((x), float: magnitude_f, default: fabs)(x)
#define square_root(x) _Generic((x), float: square_root_f, default: sqrt)(x)
#define logarithm(x) _Generic((x), float: logarithm_f, default: log)(x)
#define exponential(x) _Generic((x), float: exponential_f, default: exp)(x)
#define signum(x) _Generic((x), float: signum_f, default: signum_d)(x)
#define power(x, y) _Generic((x), float: power_f, default: pow)(x, y)
#define binary_logarithm(x) _Generic((x), float: binary_logarithm_f, default: log2)(x)
#define binary_exponential(x) _Generic((x), float: binary_exponential_f, default: exp2)(x)
#define at_least(a, b) _Generic((a), float: at_least_f, default: at_least_d)(a, b)
#define at_most(a, b) _Generic((a), float: at_most_f, default: at_most_d)(a, b)
#define larger(a, b) _Generic((a), float: larger_f, default: larger_d)(a, b)
#define smaller(a, b) _Generic((a), float: smaller_f, default: smaller_d)(a, b)
