/* What the element-wise rules of a step are written in; fused.py adds the step itself. */
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

/* 2^offset x^exponent for a normal x > 0, clipped between 2^low and 2^high with both within -126
   and 127; exactly 1 for exponent and offset 0. */
static inline float clipped_power(float x, float exponent, float offset, float low, float high) {
    return binary_power(within(exponent * binary_log(x) + offset, low, high));
}
