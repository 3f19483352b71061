/* What a kernel of CUDA needs on a processor: a block's threads are threads, blocks come one by one. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define KERNEL static void
#define INLINE static inline
#define __shared__ static
#define __align__(bytes)
#define __syncthreads() pthread_barrier_wait(&all_here)

typedef struct {
    int x, y;
} place_t;

static pthread_barrier_t all_here;
static place_t blockIdx, gridDim;
static __thread place_t threadIdx;
