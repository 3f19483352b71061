/* A vehicle's whole round.

   whole_round.py puts the source together: trace.c, the rules' steps `first_part` and `later_part`
   and the `points` where they take gradients, the slope of the loss, this file, and the model's own
   C, which defines `model_step`. */
#include <time.h>

typedef void sgemm_t(const char *, const char *, const int64_t *, const int64_t *, const int64_t *,
                     const float *, const float *, const int64_t *, const float *, const int64_t *,
                     const float *, float *, const int64_t *);

/* What the vehicles of a round share; `RoundArguments` in whole_round.py is the same. There are P vehicles with
   D weights each, W training windows in the fleet, and batches of at most B windows. */
typedef struct {
    const float *series;         /* [seconds, features] */
    const int64_t *starts;       /* [W] where in the series a window begins */
    const float *labels;         /* [W] */
    const float *anchors;        /* [P, D] the weights that a vehicle starts from */
    const double *numbers;       /* [P, NUMBERS] the rate and the rules' own numbers */
    const float *const *tensors; /* TENSORS of them, each [P, D] */
    const int64_t *sizes;        /* the model's own */
    sgemm_t *sgemm;
    double *path;                /* [P] each step adds its length, unless it is NULL */
    int64_t features, batch, columns; /* columns: D */
} round_t;

/* A vehicle's step: what the rules read and where they write. */
typedef struct {
    const float *weights, *anchor, **tensors;
    const double *numbers;
    float *result;
    float *kept; /* where a gradient goes that is not the step's last one; else NULL */
    int is_first;
    float *old;     /* room for weights before they are moved, to tell how far; else NULL */
    double squared; /* length of the step so far, squared */
    double seconds; /* spent so far */
} step_t;

/* Moves `count` weights from number `begin` on, of which `gradient` is known. A model hands over a
   piece as soon as nothing needs its old weights any more: it is still in the cache then. */
static void take_step(step_t *step, int64_t begin, int64_t count, const float *gradient);

/* One step on the mean loss of `count` windows, each given by where its numbers begin. Returns how
   many weights the model has moved, from the first one on. `gradient` is D zeros, of which it may
   write over as many; `work` is as much memory as it has asked for. */
static int64_t model_step(const round_t *round, const float *weights, const float *const *windows,
                          const float *labels, int64_t count, float *gradient, float *work,
                          step_t *step);

static inline double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void take_step(step_t *step, int64_t begin, int64_t count, const float *gradient) {
    if (step->kept) {
        memcpy(step->kept + begin, gradient, count * sizeof(float));
        return;
    }
    const double before = seconds_now();
    if (step->old) memcpy(step->old, step->weights + begin, count * sizeof(float));
    (step->is_first ? first_part : later_part)(gradient, step->weights, step->result, step->anchor,
                                               step->numbers, step->tensors, begin, begin + count);
    for (int64_t i = 0; step->old && i < count; i++) {
        const double by = step->result[begin + i] - step->old[i];
        step->squared += by * by;
    }
    step->seconds += seconds_now() - before;
}

/* The next `count` floats of `memory`, up to where a new line of the cache begins. */
static float *taken(float **memory, int64_t count) {
    float *here = *memory;
    *memory += (count + 15) / 16 * 16;
    return here;
}

/* Where the windows of a batch begin, and their labels; returns how many there are. `order` [B] says
   which of the windows from `base` on they are, -1 at the end of a short batch. */
static int64_t find_batch(const round_t *round, const int32_t *order, int64_t base,
                          const float **windows, float *labels) {
    int64_t count = 0;
    for (; count < round->batch && order[count] >= 0; count++) {
        windows[count] = round->series + round->starts[base + order[count]] * round->features;
        labels[count] = round->labels[base + order[count]];
    }
    return count;
}

/* All steps of the vehicle in `row`, whose windows are numbered from `base` on. `order` [steps, B]
   says which of them make a batch, -1 at the end of a short one. Writes how far the weights have
   moved to `moved` [D] and returns the seconds of all that is not a gradient. */
double train(const round_t *round, int64_t row, int64_t steps, const int32_t *order, int64_t base,
             float *memory, float *moved) {
    const int64_t batch = round->batch, columns = round->columns;
    const float *anchor = round->anchors + row * columns, *tensors[TENSORS + 1];
    for (int place = 0; place < TENSORS; place++)
        tensors[place] = round->tensors[place] + row * columns;
    float *weights = taken(&memory, columns), *gradient = taken(&memory, columns);
    float *previous = LOOKS_BACK ? taken(&memory, columns) : weights;
    float *found[GRADIENTS];
    for (int place = 0; place < VECTORS; place++) found[place] = taken(&memory, columns);
    float *labels = taken(&memory, batch);
    const float **windows = (const float **)taken(&memory, 2 * batch);
    memcpy(weights, anchor, columns * sizeof(float));
    memcpy(previous, anchor, columns * sizeof(float));
    memset(gradient, 0, columns * sizeof(float));
    step_t step = {.anchor = anchor, .numbers = round->numbers + row * NUMBERS, .tensors = tensors};
    if (round->path) step.old = taken(&memory, columns);
    for (int64_t number = 0; number < steps; number++, order += batch) {
        const int64_t count = find_batch(round, order, base, windows, labels);
        step.weights = weights;
        step.result = previous;
        step.is_first = number == 0;
        int64_t done = 0;
        /* All gradients of a step but the last are kept; that one moves the weights, and is taken at
           a point that may lie where the one before it was: the less memory, the more is cached. */
        for (int place = 0; place < GRADIENTS; place++) {
            const float *here = weights;
            if (points[place]) {
                const double before = seconds_now();
                float *point = found[place < VECTORS ? place : VECTORS - 1];
                points[place](weights, anchor, (const float *const *)found, step.numbers, tensors,
                              point, columns);
                step.seconds += seconds_now() - before;
                here = point;
            }
            step.kept = place < GRADIENTS - 1 ? found[place] : NULL;
            done = model_step(round, here, windows, labels, count, gradient, memory, &step);
            /* Weights that the model's own loss does not reach, such as exits of FedEL's. */
            if (done < columns) take_step(&step, done, columns - done, gradient + done);
        }
        if (round->path) round->path[row] += square_root(step.squared);
        step.squared = 0.0;
        /* The newer weights are where the older ones were. */
        previous = weights;
        weights = step.result;
    }
    for (int64_t i = 0; i < columns; i++) moved[i] = weights[i] - anchor[i];
    return step.seconds;
}

/* C = op(A) op(B) + beta C in rows; op is 'N' or 'T', and the number after a matrix is the length
   of its rows. BLAS counts by columns, so it is told Cᵀ = op(B)ᵀ op(A)ᵀ. Its numbers have 32 or 64
   bits; small ones of 64 read the same as 32 where the low half comes first. */
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
