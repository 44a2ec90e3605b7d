// The arithmetic of Adasum, a sum that counts the common part of n gradients once instead of n times:
//
//   Adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b       orthogonal: a + b; parallel and equal: a
//
// and over a list S in the fixed tree order (reduce.h): Adasum of the first p and of the rest, p the largest power of
// two below |S|. Every node of this tree is a linear combination of the inputs, and all scalar products that it needs
// follow from those of the inputs. So the n (n+1) / 2 products of the inputs, the Gram matrix, determine all n
// coefficients, and the vectors are added only once. A vector of length 0 has the factor 1.
//
// Source: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021.
//
// All values are computed in double and rounded once; results depend on the arguments only. Pure functions; any thread
// may call them. REQUIRES everywhere: floating types.
#pragma once

#include <cstddef>
#include <vector>

#include "reduce/reduce.h"

namespace farandole {

// The matrix has one entry per pair i <= j of n vectors, row 0 first.
inline size_t GramSize(size_t n) { return n * (n + 1) / 2; }
inline size_t GramIndex(size_t i, size_t j, size_t n) { return i * n - i * (i + 1) / 2 + j; }

// Adds the products over a stretch of the vectors to the matrix. The bits depend on how the vectors are cut into
// stretches, unless all stretches but the last are multiples of kGramStretch.
inline constexpr size_t kGramStretch = 256;
void AddGram(DType dtype, const std::vector<const void*>& vectors, size_t element_count, std::vector<double>* gram);

// One coefficient per vector: Adasum is the sum of coefficients[i] * vectors[i].
std::vector<double> AdasumCoefficients(size_t n, const std::vector<double>& gram);

// output = scale * sum of coefficients[i] * vectors[i]. `output` may be one of the vectors.
void AddWeighted(DType dtype, const std::vector<const void*>& vectors, const std::vector<double>& coefficients,
                 size_t element_count, Scale scale, void* output);

}  // namespace farandole
