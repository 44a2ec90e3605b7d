// The arithmetic of Adasum, a sum that counts what gradients have in common once, not n times:
//
//   Adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b       orthogonal: a + b; parallel and equal: a
//
// and over a list S in order R (reduce.h): Adasum of the first p and of the rest, p the largest power of two below |S|.
// Every node of this tree is a linear combination of the inputs, and all scalar products that it asks for follow from
// those of the inputs. So with their n (n+1) / 2 products, the Gram matrix, n coefficients can be computed before a
// single vector is added. A product of a vector without length counts as 0.
//
// Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021.
//
// Everything is computed in double and rounded once; results depend on the arguments only. Pure functions; any thread.
// REQUIRES everywhere: floating types.
#pragma once

#include <cstddef>
#include <vector>

#include "reduce/reduce.h"

namespace farandole {

// Products of n vectors, i <= j: row 0 first.
inline size_t GramSize(size_t n) { return n * (n + 1) / 2; }
inline size_t GramIndex(size_t i, size_t j, size_t n) { return i * n - i * (i + 1) / 2 + j; }

// Sums over a stretch of the vectors are added to the matrix. The bits depend on how vectors are cut to stretches,
// unless all but the last are multiples of this.
inline constexpr size_t kGramStretch = 256;
void AddGram(DType dtype, const std::vector<const void*>& vectors, size_t element_count, std::vector<double>* gram);

std::vector<double> AdasumCoefficients(size_t n, const std::vector<double>& gram);

// output = scale * sum of coefficients[i] * vectors[i]. `output` may be one of the vectors.
void AddWeighted(DType dtype, const std::vector<const void*>& vectors, const std::vector<double>& coefficients,
                 size_t element_count, Scale scale, void* output);

}  // namespace farandole
