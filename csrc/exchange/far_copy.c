#include "exchange/far_copy.h"
#include "exchange/block_bytes.h"
#include "exchange/piece_buffer.h"

enum {
    /* Bytes of own runs. The kernel takes longer for each shorter one than it takes to copy them
     * once more within the caches. */
    READ_RUN_LEAST = 512,
    WRITE_RUN_LEAST = 2 << 10
};

/* The buffer as a nest. */
static tempi_nest_shape packed(const char *bytes, int64_t n)
{
    return (tempi_nest_shape){.first = (uint64_t)(uintptr_t)bytes, .run = n, .runs = 1};
}

static bool read_piece(pid_t process, tempi_nest_walk *from, const tempi_op *block, int64_t at,
                       int64_t n, char *buffer)
{
    const tempi_nest_shape shape = packed(buffer, n);
    tempi_nest_walk to;
    tempi_nest_begin(&to, &shape);
    if (!tempi_single_copy_read(process, from, &to, n))
        return false;
    tempi_block_unpack(block, at, n, buffer);
    return true;
}

static bool write_piece(pid_t process, tempi_nest_walk *to, const tempi_op *block, int64_t at,
                        int64_t n, char *buffer)
{
    const tempi_nest_shape shape = packed(buffer, n);
    tempi_nest_walk from;
    tempi_nest_begin(&from, &shape);
    tempi_block_pack(block, at, n, buffer);
    return tempi_single_copy_write(process, &from, to, n);
}

typedef bool piece_fn(pid_t process, tempi_nest_walk *far, const tempi_op *block, int64_t at,
                      int64_t n, char *buffer);

static bool in_pieces(piece_fn *move, pid_t process, tempi_nest_walk *far, const tempi_op *block)
{
    const int64_t most = tempi_piece_bytes();
    tempi_piece_buffer piece;
    bool done = true;
    tempi_piece_open(&piece, block->n < most ? block->n : most);
    for (int64_t at = 0, n; at < block->n && done; at += n) {
        n = block->n - at < piece.size ? block->n - at : piece.size;
        done = move(process, far, block, at, n, piece.bytes);
    }
    tempi_piece_close(&piece);
    return done;
}

/* Whether the kernel is to walk the block's own runs. */
static bool is_long(const tempi_op *block, int64_t least, tempi_nest_shape *own)
{
    return tempi_nest_describe(block, own) && (own->run >= least || own->runs == 1);
}

bool tempi_far_read(pid_t process, tempi_nest_walk *from, const tempi_op *block)
{
    tempi_nest_shape own;
    tempi_nest_walk to;
    if (!is_long(block, READ_RUN_LEAST, &own))
        return in_pieces(read_piece, process, from, block);
    tempi_nest_begin(&to, &own);
    return tempi_single_copy_read(process, from, &to, block->n);
}

bool tempi_far_write(pid_t process, tempi_nest_walk *to, const tempi_op *block)
{
    tempi_nest_shape own;
    tempi_nest_walk from;
    if (!is_long(block, WRITE_RUN_LEAST, &own))
        return in_pieces(write_piece, process, to, block);
    tempi_nest_begin(&from, &own);
    return tempi_single_copy_write(process, &from, to, block->n);
}

bool tempi_far_store(const tempi_probe *there, const tempi_nest_shape *place, const tempi_op *block)
{
    tempi_nest_walk to;
    if (!tempi_single_copy_reaches(there))
        return false;
    tempi_nest_begin(&to, place);
    return tempi_far_write((pid_t)there->process, &to, block);
}
