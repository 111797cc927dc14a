// Stand-in for the part of the CUDA toolkit that wheels ship in another package.
#pragma once
