/* copy_work.h: the arguments of a copy function. */
#ifndef TEMPI_EMULATOR_COPY_H
#define TEMPI_EMULATOR_COPY_H

#include "emulator/core/emulator.h"

typedef enum { EMU_ANY, EMU_MUST_HOST, EMU_MUST_DEVICE } tempi_emu_must;

typedef struct {
    uint64_t dst;
    uint64_t src;
    tempi_emu_must dst_must;
    tempi_emu_must src_must;
    tempi_emu_box box; /* tempi_emu_copy sets its pointers and staging */
    CUstream stream;
    bool wait; /* a synchronous function */
} tempi_emu_transfer;

CUresult tempi_emu_copy(tempi_emu_context *context, const tempi_emu_transfer *transfer);
CUresult tempi_emu_fill(tempi_emu_context *context, CUdeviceptr pointer, uint8_t value,
                        size_t count, CUstream handle);

#endif
