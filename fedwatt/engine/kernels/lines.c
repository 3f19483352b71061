/* Predictions of an MLP on straight lines through its weights, in float64; lines.py has the same in
   torch.

   At the weights (W, b) + s·(D, d), and as long as no unit below it switches, a layer is

       z(s) = Σ_i sⁱ z_i,    z_i = x_i W + x_{i-1} D (+ b for i = 0, + d for i = 1),

   where x_i is [z_0 > 0] z_i of the layer below, or x_0 the window itself. Where a unit might
   switch between the ends of a line, `bend` follows the window point by point.

   Windows are taken a block at a time, so that all but the matrices stays in the cache, and
   matrices are multiplied in tiles that the processor keeps in its registers. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a vector, vectors of a row of a tile, rows of a tile: its sums fill half of the
   processor's registers. Eight rows of two vectors take a third less time than four of four. */
#if defined(__AVX512F__)
enum { LANES = 8, WIDE = 2, TALL = 8 };
#elif defined(__AVX__)
enum { LANES = 4, WIDE = 2, TALL = 4 };
#else
enum { LANES = 2, WIDE = 2, TALL = 4 };
#endif
enum {
    PANEL = LANES * WIDE, /* columns of a tile */
    DEEP = 128,           /* rows of a panel that a tile runs through at once */
    BLOCK = 128           /* windows, or points of a line, that are followed at once */
};

typedef double vector_t __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

/* An MLP with L hidden layers and D weights, and the points s at which it is asked; `Task` in
   lines.py is the same. */
typedef struct {
    const int64_t *width;  /* [L + 2] inputs, units of each hidden layer, 1 */
    const int64_t *begin;  /* [L + 1] where in the weights a layer's matrix begins; then its bias */
    const double *weights; /* [D] */
    const double *offsets; /* [points] s */
    int64_t layers, size, points; /* L, D */
    double reach;                 /* largest |s| */
} task_t;

/* A block of windows. All matrices have BLOCK rows of padded(units) numbers. */
typedef struct {
    int64_t rows;        /* windows */
    const double *input; /* [rows, inputs] */
    double **terms;      /* z_i of hidden layer l, counted from 0, is terms[l * (L + 1) + i] */
    double **x;          /* [L + 1] x_i of the layer that is being worked on */
    double **result;     /* [L + 2] the terms of the predictions, [BLOCK] */
    double *work;        /* of `bend` */
} block_t;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* How far the rows of a product with `width` columns are apart: whole tiles. */
static inline int64_t padded(int64_t width) { return (width + PANEL - 1) / PANEL * PANEL; }

static inline double relu(double z) { return z < 0.0 ? 0.0 : z; } /* NaN stays NaN */

/* C += A B for TALL rows of A, given by where they begin, with numbers `step` apart, and `depth`
   rows of a panel of B; rows of C are `apart`. */
static inline void tile(const double *const *a, int64_t step, int64_t depth, const double *panel,
                        double *c, int64_t apart) {
    vector_t sum[TALL][WIDE], factor[WIDE];
    for (int r = 0; r < TALL; r++)
        for (int v = 0; v < WIDE; v++) sum[r][v] = *(vector_t *)(c + r * apart + v * LANES);
    for (int64_t k = 0; k < depth; k++) {
        for (int v = 0; v < WIDE; v++)
            factor[v] = *(const vector_t *)(panel + k * PANEL + v * LANES);
        for (int r = 0; r < TALL; r++)
            for (int v = 0; v < WIDE; v++) sum[r][v] += a[r][k * step] * factor[v];
    }
    for (int r = 0; r < TALL; r++)
        for (int v = 0; v < WIDE; v++) *(vector_t *)(c + r * apart + v * LANES) = sum[r][v];
}

/* C += A B for A [rows, inner], rows `of_a` and columns `step` apart, and B [inner, width], rows
   `of_b` apart. C has whole tiles: padded rows, and up to TALL - 1 more of them. */
static void multiply(const double *a, int64_t of_a, int64_t step, int64_t rows, int64_t inner,
                     const double *b, int64_t of_b, int64_t width, double *c) {
    /* Rows of B a power of two apart would drive each other out of the cache. */
    double panel[DEEP * PANEL] __attribute__((aligned(64)));
    for (int64_t first = 0; first < inner; first += DEEP)
        for (int64_t column = 0; column < width; column += PANEL) {
            const int64_t depth = least(DEEP, inner - first), wide = least(PANEL, width - column);
            for (int64_t k = 0; k < depth; k++) {
                const double *from = b + (first + k) * of_b + column;
                double *to = panel + k * PANEL;
                if (wide == PANEL)
                    for (int v = 0; v < PANEL; v += LANES)
                        *(vector_t *)(to + v) = *(const vector_t *)(from + v);
                else
                    for (int64_t j = 0; j < PANEL; j++) to[j] = j < wide ? from[j] : 0.0;
            }
            for (int64_t row = 0; row < rows; row += TALL) {
                const double *lines[TALL]; /* the last row again rather than one beyond it */
                for (int r = 0; r < TALL; r++)
                    lines[r] = a + least(row + r, rows - 1) * of_a + first * step;
                tile(lines, step, depth, panel, c + row * padded(width) + column, padded(width));
            }
        }
}

/* `rows` rows of C = `row` [width], or 0 for NULL. */
static void start(const double *row, int64_t rows, int64_t width, double *c) {
    memset(c, 0, rows * padded(width) * sizeof(double));
    for (int64_t r = 0; row && r < rows; r++)
        for (int64_t j = 0; j < width; j++) c[r * padded(width) + j] = row[j];
}

static double dot(const double *a, const double *b, int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < count; k++) sum += a[k] * b[k];
    return sum;
}

/* x_i = [z_0 > 0] z_i for i <= degree; a product, so that what is not finite stays so. */
static void let_through(double *const *z, int64_t degree, int64_t count, double *const *x) {
    for (int64_t i = 0; i <= degree; i++)
        for (int64_t k = 0; k < count; k++) x[i][k] = z[i][k] * (z[0][k] > 0.0 ? 1.0 : 0.0);
}

/* The terms of hidden layer l: z_0, which lines share, or for a direction all the others. */
static void hidden(const task_t *task, const block_t *block, int64_t l, const double *direction) {
    const int64_t in = task->width[l], out = task->width[l + 1], rows = block->rows;
    const int64_t apart = l ? padded(in) : in, degree = direction ? l : 0;
    const double *w = task->weights + task->begin[l];
    const double *d = direction ? direction + task->begin[l] : NULL;
    const double *const *x = l ? (const double *const *)block->x : &block->input;
    double **z = block->terms + l * (task->layers + 1);
    if (l) let_through(z - (task->layers + 1), degree, rows * apart, block->x);
    for (int64_t i = d ? 1 : 0; i <= (d ? l + 1 : 0); i++) {
        start(i == 0 ? w + in * out : i == 1 ? d + in * out : NULL, rows, out, z[i]);
        if (i <= degree) multiply(x[i], apart, 1, rows, in, w, out, out, z[i]);
        if (i > 0) multiply(x[i - 1], apart, 1, rows, in, d, out, out, z[i]);
    }
}

/* Whether Σ sⁱ z_i, |s| <= reach, might change its sign in one of `units` from number `at` on;
   `slack` is memory for as many numbers. */
static int may_switch(double *const *z, int64_t degree, int64_t at, int64_t units, double reach,
                      double *slack) {
    double power = reach;
    int any = 0;
    for (int64_t k = 0; k < units; k++) slack[k] = fabs(z[0][at + k]);
    for (int64_t i = 1; i <= degree; i++, power *= reach)
        for (int64_t k = 0; k < units; k++) slack[k] -= fabs(z[i][at + k]) * power;
    for (int64_t k = 0; k < units; k++) any |= slack[k] < 0.0;
    return any;
}

/* The terms of the predictions, which have one column. */
static void output(const task_t *task, const block_t *block, const double *direction) {
    const int64_t layers = task->layers, units = task->width[layers], apart = padded(units);
    const double *w = task->weights + task->begin[layers], *d = direction + task->begin[layers];
    let_through(block->terms + (layers - 1) * (layers + 1), layers, block->rows * apart, block->x);
    for (int64_t i = 0; i <= layers + 1; i++)
        for (int64_t r = 0; r < block->rows; r++) {
            double sum = i == 0 ? w[units] : i == 1 ? d[units] : 0.0;
            if (i <= layers) sum += dot(block->x[i] + r * apart, w, units);
            if (i > 0) sum += dot(block->x[i - 1] + r * apart, d, units);
            block->result[i][r] = sum;
        }
}

/* Predictions, each `apart` from the one before, for the window in `row`, in which units switch.

   A unit z of the first layer counts as [z_0 > 0] z in the terms of the second. What is missing,
   c = relu(z) - [z_0 > 0] z, is 0 for all but the few that switch, and enters by their rows of
   W + s·D alone. From there on layers are computed point by point; they are the narrow ones.
   Points are the columns of all matrices here. */
static void bend(const task_t *task, const block_t *block, const double *direction, int64_t row,
                 double *predictions, int64_t apart) {
    const int64_t *width = task->width, layers = task->layers, in = width[1], out = width[2];
    const double *w = task->weights + task->begin[1], *d = direction + task->begin[1];
    const double *z0 = block->terms[0] + row * padded(in), *z1 = block->terms[1] + row * padded(in);
    double *lines = block->work, *factors = lines + DEEP * out, *x = factors + DEEP * BLOCK;
    for (int64_t first = 0; first < task->points; first += BLOCK) {
        const int64_t points = least(BLOCK, task->points - first), whole = padded(points);
        const double *s = task->offsets + first;
        int64_t known = 0; /* rows of `factors` [known, points] and of `lines` [known, out] */
        for (; known < 3; known++) {
            const double *term = layers == 1 ? block->result[known] + row
                                             : block->terms[layers + 1 + known] + row * padded(out);
            memcpy(lines + known * out, term, out * sizeof(double));
            for (int64_t j = 0; j < points; j++)
                factors[known * BLOCK + j] = known ? s[j] * factors[(known - 1) * BLOCK + j] : 1.0;
        }
        start(NULL, out, points, x);
        for (int64_t unit = 0; unit < in; unit++) {
            if (!(fabs(z0[unit]) < fabs(z1[unit]) * task->reach)) continue;
            if (known + 2 > DEEP) {
                multiply(lines, 1, out, out, known, factors, BLOCK, points, x);
                known = 0;
            }
            const double on = z0[unit] > 0.0 ? 1.0 : 0.0;
            double *c = factors + known * BLOCK;
            for (int64_t j = 0; j < points; j++) {
                const double z = z0[unit] + s[j] * z1[unit];
                c[j] = relu(z) - on * z;
                c[BLOCK + j] = s[j] * c[j];
            }
            memcpy(lines + known++ * out, w + unit * out, out * sizeof(double));
            memcpy(lines + known++ * out, d + unit * out, out * sizeof(double));
        }
        multiply(lines, 1, out, out, known, factors, BLOCK, points, x);
        double *y = x;
        for (int64_t l = 2; l <= layers; l++) {
            const int64_t below = width[l], units = width[l + 1];
            const double *still = task->weights + task->begin[l];
            const double *moved = direction + task->begin[l], *under = y;
            y += below * whole;
            for (int64_t unit = 0; unit < units; unit++) {
                double *sum = y + unit * whole;
                const double b = still[below * units + unit], c = moved[below * units + unit];
                for (int64_t j = 0; j < points; j++) sum[j] = b + s[j] * c;
                for (int64_t k = 0; k < below; k++) {
                    const double own = still[k * units + unit], slope = moved[k * units + unit];
                    for (int64_t j = 0; j < points; j++)
                        sum[j] += relu(under[k * whole + j]) * (own + s[j] * slope);
                }
            }
        }
        for (int64_t j = 0; j < points; j++) predictions[(first + j) * apart] = y[j];
    }
}

/* Predictions [points, rows], rows `apart`, of the windows of a block on one line. */
static void follow(const task_t *task, const block_t *block, const double *direction,
                   double *predictions, int64_t apart) {
    const int64_t layers = task->layers, rows = block->rows;
    char bent[BLOCK] = {0};
    for (int64_t l = 0; l < layers; l++) {
        const int64_t units = task->width[l + 1];
        hidden(task, block, l, direction);
        for (int64_t r = 0; r < rows; r++)
            bent[r] |= may_switch(block->terms + l * (layers + 1), l + 1, r * padded(units), units,
                                  task->reach, block->x[0]);
    }
    output(task, block, direction);
    for (int64_t j = 0; j < task->points; j++) {
        double *own = predictions + j * apart;
        memcpy(own, block->result[layers + 1], rows * sizeof(double));
        for (int64_t i = layers; i >= 0; i--)
            for (int64_t r = 0; r < rows; r++)
                own[r] = own[r] * task->offsets[j] + block->result[i][r];
    }
    for (int64_t r = 0; r < rows; r++)
        if (bent[r]) bend(task, block, direction, r, predictions + r, apart);
}

/* Predictions [lines, points, count] on the lines along `directions` [lines, D] for `windows`
   [count, inputs]. Returns 0 if there is not enough memory. */
int along(const task_t *task, const double *directions, int64_t lines, const double *windows,
          int64_t count, double *predictions) {
    const int64_t layers = task->layers, *width = task->width;
    int64_t terms_width = 0, widest = 0, units = 1;
    for (int64_t l = 0; l < layers; l++) {
        terms_width += (l + 2) * padded(width[l + 1]);
        widest = most(widest, padded(width[l + 1]));
        units += width[l + 1];
    }
    const int64_t columns = terms_width + (layers + 1) * widest + layers + 2;
    const int64_t of_bend = DEEP * (width[2] + BLOCK) + (units + TALL) * BLOCK;
    double *memory = aligned_alloc(64, (BLOCK * columns + of_bend) * sizeof(double));
    if (!memory) return 0;

    double *terms[layers * (layers + 1)], *x[layers + 1], *result[layers + 2], *next = memory;
    for (int64_t l = 0; l < layers; l++)
        for (int64_t i = 0; i < l + 2; i++, next += BLOCK * padded(width[l + 1]))
            terms[l * (layers + 1) + i] = next;
    for (int64_t i = 0; i < layers + 1; i++, next += BLOCK * widest) x[i] = next;
    for (int64_t i = 0; i < layers + 2; i++, next += BLOCK) result[i] = next;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const block_t block = {least(BLOCK, count - first), windows + first * width[0], terms, x,
                               result, next};
        for (int64_t l = 0; l < layers; l++) hidden(task, &block, l, NULL);
        for (int64_t line = 0; line < lines; line++)
            follow(task, &block, directions + line * task->size,
                   predictions + line * task->points * count + first, count);
    }
    free(memory);
    return 1;
}
