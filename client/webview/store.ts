// The rows that have come from the server, a page at a time; what is missing is asked for once.
import type { Row, RowsParams } from "../src/protocol";

const PAGE = 100;

export class Store {
  private readonly rows = new Map<number, Row>();
  private readonly asked = new Set<number>();

  constructor(
    private readonly picture: string,
    private readonly total: number,
    readonly columns: readonly number[],
    private readonly ask: (asked: RowsParams) => void,
  ) {}

  /** Takes rows with the cells of these columns and perhaps more; false for others, which come too late. */
  take({ picture, columns }: Pick<RowsParams, "picture" | "columns">, first: number, rows: readonly Row[]): boolean {
    const places = this.columns.map((column) => columns.indexOf(column));
    if (picture !== this.picture || places.includes(-1)) {
      return false;
    }
    rows.forEach((row, index) => {
      this.rows.set(first + index, { ...row, cells: [row.cells[0] ?? null, ...places.map((place) => row.cells[place + 1] ?? null)] });
    });
    return true;
  }

  /** A row; where it is not here yet, its page is asked for. */
  row(number: number): Row | undefined {
    const row = this.rows.get(number);
    const page = Math.floor(number / PAGE);
    if (row === undefined && !this.asked.has(page)) {
      this.asked.add(page);
      this.ask({ picture: this.picture, first: page * PAGE, end: Math.min(this.total, (page + 1) * PAGE), columns: this.columns });
    }
    return row;
  }
}
