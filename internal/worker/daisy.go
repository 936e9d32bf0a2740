package worker

import "errors"

func (s *slot) startDaisy(b *Block) (resident, error) { return nil, errors.New("x") }
