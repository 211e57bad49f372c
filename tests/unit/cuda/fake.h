/* fake.h: a CUDA driver without a device, for tests of csrc/cuda. Its memory is host memory of
 * known kinds; its streams hold their operations until a call waits or queries; any of its calls
 * can be made to fail. The test program accesses it by dlsym. */
#ifndef TEMPI_FAKE_H
#define TEMPI_FAKE_H
#include <stdint.h>

enum { FAKE_PINNED = 1, FAKE_DEVICE = 2, FAKE_MANAGED = 3 };
enum { FAKE_DEVICES = 2, FAKE_PARAMS = 4 };

typedef struct fake_control {
    int progress; /* operations that run at a query of an unfinished event */
    int fail_at;  /* the n-th call from now returns fail_with, once; 0: none */
    int fail_with;
    const char *fail_call; /* every call of this name returns fail_with; NULL: none */
    int fail_once;         /* only the first of them */
    int lost;              /* result of all calls; 0: they work */
    int calls;             /* so far */
    int64_t room;          /* bytes that can still be allocated */
    int live;              /* allocations, streams, events, modules and contexts not released */
    int queries;           /* of pointers */
    int launches;
    int grid; /* of the last one */
    int copies;
    int pending;        /* operations of all streams that have not run */
    char last_call[40]; /* that returned fail_with */
    void (*kernel)(uint64_t *params);
    /* For the test program: these never fail and are not counted. */
    void *(*alloc)(int kind, int device, int64_t bytes);
    void (*free)(void *address);
    void *(*stream)(int device); /* 0 <= device: a new one; -1 - device: its legacy stream */
    void (*end)(void *stream);   /* destroys a non-legacy stream */
    void (*fill)(void *stream, void *to, int byte, int64_t bytes); /* in stream order */
    void *(*current)(int device); /* makes its context current (-1: none); returns it */
} fake_control;

extern fake_control fake;
#endif
