-- sales of each region, with the month before
WITH monthly AS (
    SELECT region, date_trunc('month', sold_at) AS month, SUM(amount) AS total
    FROM sales
    WHERE sold_at >= DATE '2026-01-01'
    GROUP BY region, date_trunc('month', sold_at)
)
SELECT region,
       month,
       total,
       LAG(total) OVER (PARTITION BY region ORDER BY month) AS previous,
       total - LAG(total) OVER (PARTITION BY region ORDER BY month) AS change
FROM monthly
ORDER BY region, month;
