/* cu_module.h: a loaded module and its functions. */
#ifndef TEMPI_EMULATOR_MODULE_H
#define TEMPI_EMULATOR_MODULE_H

#include "emulator/core/emulator.h"

struct tempi_emu_entry {
    const tempi_ptx_kernel *kernel;
    struct tempi_emu_module *module;
    int dynamic_shared; /* the limit on dynamic shared memory */
    int carveout;
};

struct tempi_emu_module {
    struct tempi_emu_module *next;
    tempi_emu_context *context;
    void *library;
    const tempi_ptx_module *ptx;
    uint64_t variables; /* device address, 0 for none */
    struct tempi_emu_entry *functions;
};

bool tempi_emu_entry_known(const struct tempi_emu_entry *function);

#endif
