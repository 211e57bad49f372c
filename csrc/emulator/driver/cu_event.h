/* cu_event.h: an event, and its part that other processes see. */
#ifndef TEMPI_EMULATOR_EVENT_H
#define TEMPI_EMULATOR_EVENT_H

#include "emulator/core/emulator.h"

/* In memory that processes share: how often it was recorded, and how many of these were reached. */
typedef struct {
    _Atomic uint64_t recorded;
    _Atomic uint64_t reached;
} tempi_emu_shared;

struct tempi_emu_event {
    struct tempi_emu_event *next;
    tempi_emu_context *context;
    unsigned flags;
    unsigned references;
    bool destroyed;
    tempi_emu_point point; /* no stream: never recorded here */
    uint64_t time;         /* when it was reached */
    uint64_t timed;        /* the point's number that the time belongs to */
    tempi_emu_shared *shared;
    bool opened; /* from another process */
};

tempi_emu_event *tempi_emu_event_new(tempi_emu_context *context, unsigned flags);
bool tempi_emu_event_known(const tempi_emu_event *event);

/* cu_ipc.c */
tempi_emu_shared *tempi_emu_shared_new(void);
void tempi_emu_shared_free(tempi_emu_shared *shared);

#endif
