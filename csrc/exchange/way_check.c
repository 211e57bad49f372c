/* way_check.c: which ways a block can go, asked by the functions that the exchange asks, and the
 * reason, for `tempi explain`. */
#include "exchange/invitation.h"
#include "exchange/offer.h"

static bool suits_as_sent(int way, const tempi_op *block)
{
    tempi_nest_shape shape;
    tempi_offer offer;
    switch (way) {
    case TEMPI_COPY_ONCE:
        tempi_offer_describe(block, 1, TEMPI_ACCESS_READ, &offer);
        return offer.n == 1;
    case TEMPI_COPY_STORED: return tempi_invitation_suits(block);
    case TEMPI_COPY_MAPPED: return tempi_offer_could_map(block, &shape);
    default: return true;
    }
}

static bool suits_as_received(int way, const tempi_op *block)
{
    tempi_invitation own = {.process = {.value = 1}}; /* so it asks the system for nothing */
    if (way != TEMPI_COPY_STORED)
        return true;
    tempi_invite(&own, 1, block, 1);
    return own.shape.runs > 0;
}

static int64_t least_block(int way)
{
    switch (way) {
    case TEMPI_COPY_TWICE: return 0;
    case TEMPI_COPY_ONCE: return TEMPI_OFFER_LEAST;
    case TEMPI_COPY_STORED: return TEMPI_INVITED_LEAST;
    case TEMPI_COPY_MAPPED: return TEMPI_OFFER_MAPPED_LEAST;
    default: return TEMPI_COPY_LEAST;
    }
}

tempi_way_limit tempi_copy_way_check(int way, int direction, const tempi_layout *layout,
                                     int64_t count, int64_t *least)
{
    const bool sent = direction == TEMPI_PACK;
    const tempi_op block = {.layout = layout, .count = count, .n = layout->size * count};
    tempi_nest_shape shape;
    *least = least_block(way);
    if (block.n < *least)
        return TEMPI_WAY_BLOCK_SHORT;
    if (sent ? suits_as_sent(way, &block) : suits_as_received(way, &block))
        return TEMPI_WAY_POSSIBLE;
    *least = TEMPI_COPY_RUN_LEAST;
    return tempi_nest_describe(&block, &shape) ? TEMPI_WAY_RUNS_SHORT : TEMPI_WAY_IRREGULAR;
}
