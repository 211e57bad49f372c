/* A fake MPI library (-DLIBRARY) and a program that calls it, to check that the trampolines pass
 * all arguments unchanged: integers and doubles, in registers and on the stack, at the first call
 * (lazy slots), from several threads at once, and later. The prototypes are not MPI's: the
 * trampolines know none. */
#include <stdio.h>

int PMPI_Init(int *argc, char ***argv);
int MPI_Alltoallw(long a, double b, long c, double d, long e, double f, long g, double h, long i,
                  double j, long k, double l, long m, double n, long o, double p, double q,
                  double r);

#ifdef LIBRARY
int PMPI_Init(int *argc, char ***argv) /* identifies an MPI library */
{
    return argc == NULL || argv == NULL;
}

int MPI_Alltoallw(long a, double b, long c, double d, long e, double f, long g, double h, long i,
                  double j, long k, double l, long m, double n, long o, double p, double q,
                  double r)
{
    const long integers[] = {a, c, e, g, i, k, m, o};
    const double doubles[] = {b, d, f, h, j, l, n, p, q, r};
    int good = 1;
    for (int x = 0; x < 8; x++)
        good &= integers[x] == a + 2 * x;
    for (int x = 0; x < 10; x++)
        good &= doubles[x] == (double)a + 0.5 + x;
    return good ? (int)a : -1;
}
#else
#include <pthread.h>

int MPI_Barrier(void *comm) __attribute__((weak));

enum { THREADS = 8, CALLS = 100 };

static pthread_barrier_t together;

static int call(long a)
{
    const double s = (double)a + 0.5;
    return MPI_Alltoallw(a, s, a + 2, s + 1, a + 4, s + 2, a + 6, s + 3, a + 8, s + 4, a + 10,
                         s + 5, a + 12, s + 6, a + 14, s + 7, s + 8, s + 9) != (int)a;
}

static void *caller(void *argument)
{
    long wrong = 0;
    (void)argument;
    pthread_barrier_wait(&together);
    for (long i = 1; i <= CALLS; i++)
        wrong += call(i);
    return (void *)wrong;
}

int main(void)
{
    pthread_t threads[THREADS];
    long wrong = 0;
    pthread_barrier_init(&together, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, caller, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    printf("wrong=%ld\n", wrong);
    if (MPI_Barrier != NULL) /* tempi exports it, this library has none */
        printf("absent=%d\n", MPI_Barrier((void *)0) != 0);
    return wrong != 0;
}
#endif
